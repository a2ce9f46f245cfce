package worker

import "github.com/berthd/berth/model"

// Device runs steps. Submit hands one over and returns; Wait gives the oldest one's result. A failed step is fatal to the
// device: the error says what to do.
type Device interface {
	Submit(*model.Plan) error
	Wait() (*model.Result, error)
}
