package router

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

const (
	// hashPrefix begins a key that is given as its SHA-256.
	hashPrefix = "sha256:"
	// keyPrefix begins the keys that are drawn here.
	keyPrefix = "sk-berth-"
	// shortestKey is of those that are given in clear: they must not be found by trying.
	shortestKey = 16
)

// newKey draws a key of 256 bits.
func newKey() string {
	var b [32]byte
	rand.Read(b[:])
	return keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

func hashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

func withKey(keys [][]byte, sum []byte) [][]byte {
	for _, k := range keys {
		if string(k) == string(sum) {
			return keys
		}
	}
	return append(slices.Clone(keys), sum)
}

// tenantMembers are what a tenant's form may have. What a server shows beside them, and a client may send back, is
// passed over.
var tenantMembers = []string{
	"id", "share_group", "weight", "cap", "floor", "priority", "tokens_per_minute", "burst", "models", "keys", "new_key",
}

var shownMembers = []string{"revision", "claimed", "tokens_left", "service", "mean_answer", "reservations"}

// changedTenant is a tenant with what a form says, and the revision of the record that it replaces.
func changedTenant(f *fields, id string, v *ledger.View) (put *ledgerv1.Tenant, replaces uint64, err error) {
	put = &ledgerv1.Tenant{Id: id}
	if old := v.Tenant(id); old != nil {
		put, replaces = &ledgerv1.Tenant{
			Id: id, ShareGroup: old.ShareGroup, Weight: old.Weight, Cap: old.Cap, Floor: old.Floor, Priority: old.Priority,
			TokensPerMinute: old.TokensPerMinute, Burst: old.Burst, Models: old.Models, Keys: old.Keys,
		}, old.Revision
	}
	if group, ok := f.text("share_group"); ok && group != put.ShareGroup {
		put.ShareGroup = group
		for _, o := range v.Tenants {
			if o.ShareGroup == group { // which has a cap and a floor already
				put.Cap, put.Floor = o.Cap, o.Floor
			}
		}
	}
	readTenant(f, put)
	return put, replaces, f.fault
}

// readTenant takes what a form says.
func readTenant(f *fields, put *ledgerv1.Tenant) {
	for _, name := range slices.Sorted(maps.Keys(f.raw)) {
		if !slices.Contains(tenantMembers, name) && !slices.Contains(shownMembers, name) {
			f.fail(invalid(name, "%s is no member of a tenant: there are %s", name, strings.Join(tenantMembers, ", ")))
		}
	}
	if put.Id != "" && !saneID.MatchString(put.Id) {
		f.fail(invalid("id", "id %.100q: want letters, digits, dots, dashes, colons and underscores, at most 128 of them", put.Id))
	}
	if id, ok := f.text("id"); ok && put.Id != "" && id != put.Id {
		f.fail(invalid("id", "id %q is not the tenant's, %q", id, put.Id))
	} else if ok {
		put.Id = id
	}
	if group, ok := f.text("share_group"); ok {
		put.ShareGroup = group
	}
	put.Weight = uint32(f.integer("weight", int64(put.Weight), 1, 1000))
	put.Cap = uint64(f.integer("cap", int64(put.Cap), 0, math.MaxInt32))
	put.Floor = uint64(f.integer("floor", int64(put.Floor), 0, math.MaxInt32))
	put.Priority = int32(f.integer("priority", int64(put.Priority), -100, 0))
	if _, ok := f.get("tokens_per_minute"); ok {
		put.TokensPerMinute, put.Burst = uint64(f.integer("tokens_per_minute", 0, 0, 1<<36)), 0
	}
	put.Burst = uint64(f.integer("burst", int64(put.Burst), 0, 1<<36))
	if raw, ok := f.get("models"); ok {
		put.Models = nil
		if json.Unmarshal(raw, &put.Models) != nil {
			f.fail(invalid("models", "models must be a list of names"))
		}
	}
	if raw, ok := f.get("keys"); ok {
		var err error
		if put.Keys, err = readKeys(raw); err != nil {
			f.fail(invalid("keys", "keys: %v", err))
		}
	}
}

func readKeys(raw json.RawMessage) (out [][]byte, err error) {
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("want a list of keys, in clear or as %sHEX", hashPrefix)
	}
	for i, key := range list {
		digits, hashed := strings.CutPrefix(key, hashPrefix)
		sum, err := hex.DecodeString(digits)
		switch {
		case hashed && (err != nil || len(sum) != sha256.Size):
			return nil, fmt.Errorf("number %d: want %d digits after %s", i+1, 2*sha256.Size, hashPrefix)
		case !hashed && (len(key) < shortestKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })):
			return nil, fmt.Errorf("number %d: want at least %d letters, digits and signs of ASCII", i+1, shortestKey)
		case !hashed:
			sum = hashKey(key)
		}
		out = withKey(out, sum)
	}
	return out, nil
}

// ReadTenants reads a list of tenants in the form of the admin API, as a JSON array of objects.
func ReadTenants(data []byte) ([]*ledgerv1.Tenant, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil || len(list) == 0 {
		return nil, fmt.Errorf("want a list of tenants")
	}
	var out []*ledgerv1.Tenant
	for i, one := range list {
		raw, err := parseObject(one)
		if err != nil {
			return nil, fmt.Errorf("tenant %d: want an object", i+1)
		}
		f, put := &fields{raw: raw}, &ledgerv1.Tenant{}
		readTenant(f, put)
		if _, draws := f.get("new_key"); draws {
			f.fail(invalid("new_key", "new_key is for the admin API: a file has its keys"))
		}
		if put.Id == "" {
			f.fail(invalid("id", "id is missing"))
		}
		if f.fault != nil {
			return nil, fmt.Errorf("tenant %d: %s", i+1, f.fault.(*Error).Message)
		}
		out = append(out, put)
	}
	return out, ledger.CheckTenants(out)
}
