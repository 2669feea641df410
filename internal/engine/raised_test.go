package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A wait for a budget, a share or a key ends when a reload of the Corefile raises or replaces it.
func TestAReloadEndsTheWaitForWhatItRaises(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for name, test := range map[string]struct {
			budget, share int
			refuse        bool
		}{"the budget": {1, 100, false}, "the share": {100, 1, false}, "the key": {1000, 100, true}} {
			t.Run(fmt.Sprintf("%s, db %t", name, stored), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					google := protocoltest.New(t)
					google.SetMinimumWait("", time.Hour)
					var entries [][]byte
					for i := range 100 {
						hash := lookup.HashExpression(fmt.Sprintf("evil%d.example/", i))
						entries = append(entries, hash[:4])
						google.AddThreat(fmt.Sprintf("evil%d.example/", i), sbv5.ThreatType_SOCIAL_ENGINEERING)
					}
					google.Publish("se-4b", entries)
					s := Settings{Endpoint: "http://raised.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", Budget: test.budget, Share: test.share, APIKey: "OLD"}
					if stored {
						s.DB = t.TempDir()
					}
					registry := NewRegistry(Edge{Transport: google, FirstContact: func() time.Duration { return 0 }})
					first, release, err := registry.Acquire(s, s.APIKey)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					if test.refuse {
						google.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
					}
					refused := -1
					for i := 0; i < 99 && refused < 0; i++ {
						if decide(first, fmt.Sprintf("evil%d.example.", i)).Verdict != lookup.Unsafe {
							refused = i
						}
					}
					if refused < 0 || decide(first, fmt.Sprintf("evil%d.example.", refused)).Verdict != lookup.Unsure {
						t.Fatalf("name %d was refused", refused)
					}
					s.Budget, s.Share = 1000, 100
					if test.refuse {
						s.APIKey = "NEW"
					}
					second, end, err := registry.Acquire(s, s.APIKey)
					if err != nil {
						t.Fatal(err)
					}
					defer end()
					release()
					time.Sleep(time.Second)
					if d := decide(second, fmt.Sprintf("evil%d.example.", refused)); d.Verdict != lookup.Unsafe {
						t.Errorf("after the reload, name %d: %+v", refused, d)
					}
				})
			})
		}
	}
}

// decide returns the decision about a name that a DNS client asks for.
func decide(e *Engine, qname string) lookup.Decision {
	d, candidates := e.Checker.Check(lookup.FromQname(qname))
	if candidates == nil {
		return d
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return e.Checker.Confirm(candidates, lookup.AdmitBy(nil, e.Shares, netip.MustParseAddr("192.0.2.1"))).Wait(ctx)
}
