package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
)

// tenantsCommand shows and changes who may use the cluster.
type tenantsCommand struct {
	operator

	List   listTenants  `cmd:"" help:"Show all tenants."`
	Show   showTenant   `cmd:"" help:"Show one."`
	Put    putTenant    `cmd:"" help:"Make a tenant, or change one: what is not said stays. From the first one on, nobody is served without a key."`
	Delete deleteTenant `cmd:"" help:"Forget a tenant. What runs of it goes on; nothing new is taken."`
	Open   openCluster  `cmd:"" help:"Ask nobody for a key any more; all tenants must be deleted before."`
	Key    newKey       `cmd:"" help:"Draw one more API key for a tenant; it is shown this once."`
}

type listTenants struct{}

type showTenant struct {
	ID string `arg:"" help:"The tenant's name."`
}

type putTenant struct {
	ID              string    `arg:"" help:"The tenant's name."`
	ShareGroup      *string   `help:"Tenants of one group find each other's cached prefixes, and have one cap and floor. Default: the tenant's own name."`
	Weight          *int      `help:"Its part of the service where others wait too, 1 to 1000. Default: 1."`
	Cap             *int      `help:"Pages that its share group may have on all workers together; 0: no cap."`
	Floor           *int      `help:"Pages that are kept for its share group."`
	Priority        *int      `help:"The lowest (most urgent) priority that its requests may have, -100 to 0."`
	TokensPerMinute *int      `help:"Tokens of prompts and answers in a minute; 0: no budget."`
	Burst           *int      `help:"Tokens that it may use at once. Default: those of a minute."`
	Models          *[]string `help:"Models that it may use, by the names that clients use; an empty list: all." placeholder:"NAME,..."`
	Keys            *[]string `help:"Its API keys, in clear or as sha256:HEX, in place of those that it has." placeholder:"KEY,..."`
	NewKey          bool      `help:"Draw one more API key; it is shown this once."`
}

type deleteTenant struct {
	ID string `arg:"" help:"The tenant's name."`
}

type openCluster struct{}

type newKey struct {
	ID string `arg:"" help:"The tenant's name."`
}

// tenant is what the admin API says of one.
type tenant struct {
	ID              string   `json:"id"`
	ShareGroup      string   `json:"share_group"`
	Weight          int      `json:"weight"`
	Cap             int      `json:"cap"`
	Floor           int      `json:"floor"`
	Priority        int      `json:"priority"`
	TokensPerMinute int      `json:"tokens_per_minute"`
	Burst           int      `json:"burst"`
	Models          []string `json:"models"`
	Keys            []string `json:"keys"`
	Claimed         int      `json:"claimed"`
	TokensLeft      int      `json:"tokens_left"`
	Reservations    int      `json:"reservations"`
	NewKey          string   `json:"new_key"`
}

// Run shows all tenants.
func (*listTenants) Run(ctx context.Context, c *tenantsCommand) error {
	raw, err := c.ask(ctx, http.MethodGet, "", nil)
	if err != nil || c.JSON {
		return c.print(raw, err)
	}
	var all struct{ Tenants []tenant }
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	drawTenants(os.Stdout, all.Tenants)
	return nil
}

// Run shows a tenant.
func (s *showTenant) Run(ctx context.Context, c *tenantsCommand) error {
	return c.one(ctx, http.MethodGet, s.ID, nil)
}

// Run makes or changes a tenant.
func (p *putTenant) Run(ctx context.Context, c *tenantsCommand) error {
	body := map[string]any{}
	for name, v := range map[string]*int{"weight": p.Weight, "cap": p.Cap, "floor": p.Floor, "priority": p.Priority,
		"tokens_per_minute": p.TokensPerMinute, "burst": p.Burst} {
		if v != nil {
			body[name] = *v
		}
	}
	for name, v := range map[string]*[]string{"models": p.Models, "keys": p.Keys} {
		if v != nil {
			body[name] = append([]string{}, *v...)
		}
	}
	if p.ShareGroup != nil {
		body["share_group"] = *p.ShareGroup
	}
	if p.NewKey {
		body["new_key"] = true
	}
	return c.one(ctx, http.MethodPut, p.ID, body)
}

// Run draws a key for a tenant that there is.
func (k *newKey) Run(ctx context.Context, c *tenantsCommand) error {
	if _, err := c.ask(ctx, http.MethodGet, k.ID, nil); err != nil {
		return err
	}
	return c.one(ctx, http.MethodPut, k.ID, map[string]any{"new_key": true})
}

// Run deletes a tenant.
func (d *deleteTenant) Run(ctx context.Context, c *tenantsCommand) error {
	raw, err := c.ask(ctx, http.MethodDelete, d.ID, nil)
	if err != nil || c.JSON {
		return c.print(raw, err)
	}
	fmt.Printf("tenant %s is deleted\n", d.ID)
	return nil
}

// Run opens a cluster that has no tenants left.
func (*openCluster) Run(ctx context.Context, c *tenantsCommand) error {
	raw, err := c.ask(ctx, http.MethodDelete, "", nil)
	if err != nil || c.JSON {
		return c.print(raw, err)
	}
	fmt.Println("the cluster is open: whoever reaches it may use it")
	return nil
}

// one asks for one tenant and shows it.
func (c *tenantsCommand) one(ctx context.Context, method, id string, body map[string]any) error {
	raw, err := c.ask(ctx, method, id, body)
	if err != nil || c.JSON {
		return c.print(raw, err)
	}
	var t tenant
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	drawTenants(os.Stdout, []tenant{t})
	for _, k := range t.Keys {
		fmt.Println("key", k)
	}
	if t.NewKey != "" {
		fmt.Printf("new key, shown this once: %s\n", t.NewKey)
	}
	return nil
}

func (c *tenantsCommand) ask(ctx context.Context, method, id string, body map[string]any) (json.RawMessage, error) {
	path := "tenants"
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	if body == nil {
		return c.operator.ask(ctx, method, path, nil)
	}
	return c.operator.ask(ctx, method, path, body)
}

func (c *tenantsCommand) print(raw json.RawMessage, err error) error {
	if err == nil {
		_, err = os.Stdout.Write(append(raw, '\n'))
	}
	return err
}

func drawTenants(out io.Writer, tenants []tenant) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tGROUP\tWEIGHT\tCLAIMED\tCAP\tFLOOR\tRUNNING\tTOKENS/MIN\tLEFT\tPRIORITY\tKEYS\tMODELS")
	for _, x := range tenants {
		budget, left, models := "-", "-", "all"
		if x.TokensPerMinute > 0 {
			budget, left = fmt.Sprint(x.TokensPerMinute), fmt.Sprint(x.TokensLeft)
		}
		if len(x.Models) > 0 {
			models = strings.Join(x.Models, ",")
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%d\t%d\t%s\t%s\t%d\t%d\t%s\n", x.ID, x.ShareGroup, x.Weight, x.Claimed, orDash(x.Cap),
			x.Floor, x.Reservations, budget, left, x.Priority, len(x.Keys), models)
	}
	t.Flush()
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
