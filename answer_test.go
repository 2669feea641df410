package safebrowsing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A blocking answer is kept by clients no longer than the server's verdict holds.
func TestTTLOfABlockingAnswerEndsWithTheVerdict(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ttl     time.Duration
		expires time.Duration // from now; 0: the verdict does not end
		want    uint32
	}{
		{"an own list", time.Minute, 0, 60},
		{"an own list, a TTL beyond 30 minutes", time.Hour, 0, 1800},
		{"a verdict that lasts longer", time.Minute, time.Hour, 60},
		{"a verdict that ends earlier", time.Minute, 7*time.Second + 900*time.Millisecond, 7},
		{"a verdict that ends earlier, a TTL beyond 30 minutes", time.Hour, 29 * time.Minute, 29 * 60},
		{"a verdict that has just ended", time.Minute, -time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := lookup.Decision{Verdict: lookup.Unsafe, Threat: lookup.Malware}
				if tc.expires != 0 {
					d.Expires = time.Now().Add(tc.expires)
				}
				r := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)
				m := reply{ttl: tc.ttl}.blocked(t.Context(), new(test.ResponseWriter), r, d)
				if soa := m.Ns[0].(*dns.SOA); soa.Hdr.Ttl != tc.want || soa.Minttl != tc.want {
					t.Errorf("Expected a TTL and a minimum of %d, got %v", tc.want, soa)
				}
			})
		})
	}
}
