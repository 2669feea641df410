package lookup

import (
	"net/netip"
	"testing"
)

func TestAClientLeavesConnectionsForOthers(t *testing.T) {
	greedy, modest := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, tc := range []struct {
		name               string
		most, others, want int // places, those that others have, and what one client gets
	}{
		{"alone it gets half", 4096, 0, 2048},
		{"while others have a quarter", 4096, 1024, 1024},
		{"while others have half", 4096, 2048, 256},
		{"of the last ones", 4096, 4000, 96},
		{"of few places all", 2, 0, 2},
		{"none is left", 2, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := NewConnections(tc.most)
			for n := range tc.others {
				if _, ok := p.Take(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), ""); !ok {
					t.Fatalf("Expected a place for the client %d", n)
				}
			}
			var leave []func()
			for {
				l, ok := p.Take(greedy, "")
				if !ok {
					break
				}
				leave = append(leave, l)
			}
			if len(leave) != tc.want {
				t.Errorf("got %d places, want %d", len(leave), tc.want)
			}
			if _, ok := p.Take(modest, ""); ok != (tc.others+tc.want < tc.most) {
				t.Errorf("another client got a place: %v", ok)
			}
			for _, l := range leave {
				l()
			}
			if _, ok := p.by[greedy]; ok {
				t.Error("Expected nothing to be kept of a client that has left")
			}
		})
	}
}
