package worker

import (
	"time"

	"github.com/berthd/berth/model"
)

// watched is a device that says since when a step runs, for readiness.
type watched struct {
	Device
	w *Worker
}

func (d watched) Submit(p *model.Plan) error {
	d.w.stepping.Store(time.Now().UnixNano())
	return d.Device.Submit(p)
}

func (d watched) Wait() (*model.Result, error) {
	defer d.w.stepping.Store(0)
	return d.Device.Wait()
}
