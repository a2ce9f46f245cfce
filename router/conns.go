package router

import (
	"fmt"
	"sync"

	"google.golang.org/grpc"
)

// conns are the connections to workers: one an address, open while a watch or a dispatch uses it.
type conns struct {
	dial []grpc.DialOption
	mu   sync.Mutex
	open map[string]*conn
}

type conn struct {
	*grpc.ClientConn
	users int
}

// use returns the connection to an address, and what gives it back.
func (c *conns) use(address string) (*grpc.ClientConn, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.open[address]
	if at == nil {
		cc, err := grpc.NewClient(address, c.dial...)
		if err != nil {
			return nil, nil, fmt.Errorf("connect to worker at %s: %w", address, err)
		}
		at = &conn{ClientConn: cc}
		c.open[address] = at
	}
	at.users++
	return at.ClientConn, sync.OnceFunc(func() { c.release(address, at) }), nil
}

func (c *conns) release(address string, at *conn) {
	c.mu.Lock()
	at.users--
	last := at.users == 0
	if last {
		delete(c.open, address)
	}
	c.mu.Unlock()
	if last {
		_ = at.Close() // nobody is left to hear of it
	}
}
