package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

type statusCommand struct {
	operator
	Legend bool `help:"Say what the columns mean."`
}

// clusterState is what GET /admin/v1/cluster says.
type clusterState struct {
	Revision uint64    `json:"revision"`
	Leader   string    `json:"leader"`
	Term     uint64    `json:"term"`
	Router   string    `json:"router"`
	Replicas []replica `json:"replicas"`
	Workers  []struct {
		ID          string `json:"id"`
		Incarnation uint64 `json:"incarnation"`
		State       string `json:"state"`
		Model       string `json:"model"`
		Device      string `json:"device"`
		Pages       struct {
			Total         int `json:"total"`
			OverheadLimit int `json:"overhead_limit"`
			Overhead      int `json:"overhead"`
			Granted       int `json:"granted"`
			Charged       int `json:"charged"`
			Held          int `json:"held"`
			Idle          int `json:"idle"`
			Free          int `json:"free"`
		} `json:"pages"`
		Running int `json:"running"`
		Waiting int `json:"waiting"`
	} `json:"workers"`
	Tenants []tenantLoad `json:"tenants"`
	Queue   struct {
		Requests int `json:"requests"`
		Tokens   int `json:"tokens"`
	} `json:"queue"`
	Refusals map[string]int `json:"refusals"`
}

// tenantLoad is what a tenant has now.
type tenantLoad struct {
	ID      string `json:"id"`
	Pages   int    `json:"pages"`
	Floor   int    `json:"floor"`
	Cap     int    `json:"cap"`
	Queued  int    `json:"queued"`
	Running int    `json:"running"`
	Tokens  int    `json:"tokens"`
}

// replica is one of the ledger's.
type replica struct {
	ID    string `json:"id"`
	Raft  string `json:"raft"`
	RPC   string `json:"rpc"`
	State string `json:"state"`
}

// ready counts the workers that take work.
func (s *clusterState) ready() (n int) {
	for _, w := range s.Workers {
		if w.State == "ready" {
			n++
		}
	}
	return n
}

// Run prints the cluster's state.
func (c *statusCommand) Run(ctx context.Context) error {
	raw, err := c.ask(ctx, http.MethodGet, "cluster", nil)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := os.Stdout.Write(append(raw, '\n'))
		return err
	}
	var s clusterState
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	draw(os.Stdout, &s)
	if c.Legend {
		fmt.Print(legend)
	}
	return nil
}

// legend says what the columns mean.
const legend = `
workers  PAGES all of the pool · GRANTED by the ledger · CHARGED to requests that run, each page once · HELD the same, with
         a page that several choices share counted for each · IDLE in the cache, taken when they are needed · FREE empty
         [#+·] charged and overhead, idle, free
tenants  PAGES granted to its share group on all workers · RUNNING, QUEUED requests at this router · TOKENS of the running
`

func draw(out io.Writer, s *clusterState) {
	fmt.Fprintf(out, "router %s: ledger revision %d, term %d, leader %s; queue %d requests, %d tokens\n\n",
		s.Router, s.Revision, s.Term, s.Leader, s.Queue.Requests, s.Queue.Tokens)
	if len(s.Replicas) > 1 {
		drawReplicas(out, s.Replicas)
		fmt.Fprintln(out)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKER\tSTATE\tINCARNATION\tMODEL\tRUNNING\tWAITING\tPAGES\tGRANTED\tCHARGED\tHELD\tIDLE\tFREE\t")
	for _, w := range s.Workers {
		p := w.Pages
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", w.ID, w.State, w.Incarnation, w.Model, w.Running, w.Waiting,
			p.Total, p.Granted, p.Charged, p.Held, p.Idle, p.Free, gauge(p.Charged+p.Overhead, p.Idle, p.Total))
	}
	t.Flush()
	for _, w := range s.Workers {
		if saved := w.Pages.Held - w.Pages.Charged - w.Pages.Overhead; saved > 0 {
			fmt.Fprintf(out, "%s: branches share pages: they would charge %d more apart\n", w.ID, saved)
		}
	}
	drawLoads(out, s.Tenants)
	for _, code := range slices.Sorted(maps.Keys(s.Refusals)) {
		fmt.Fprintf(out, "refused %d × %s\n", s.Refusals[code], code)
	}
}

// drawLoads shows the tenants, unless there is only everybody and that one has nothing.
func drawLoads(out io.Writer, tenants []tenantLoad) {
	if len(tenants) == 0 || len(tenants) == 1 && tenants[0] == (tenantLoad{ID: "default"}) {
		return
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tPAGES\tFLOOR\tCAP\tRUNNING\tQUEUED\tTOKENS")
	for _, x := range tenants {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%d\t%d\n", x.ID, x.Pages, x.Floor, orDash(x.Cap), x.Running, x.Queued, x.Tokens)
	}
	t.Flush()
}

// gauge draws a pool: # charged, + idle, · free.
func gauge(charged, idle, total int) string {
	const width = 20
	if total == 0 {
		return ""
	}
	c := (charged*width + total - 1) / total
	i := min(width-c, (idle*width+total-1)/total)
	return "[" + strings.Repeat("#", c) + strings.Repeat("+", i) + strings.Repeat("·", width-c-i) + "]"
}
