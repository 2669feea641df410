package test

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var routeAfter = flag.Duration("route.after", 5*time.Second, "how long TestARouterIsProtectedSoonAfterItsRouteIsThere waits before it adds the route")

// routeWithin is how long after the route the first threat must be blocked.
const routeWithin = time.Minute

// enterWithoutRoute gives a command a network with no more than the loopback interface.
const enterWithoutRoute = `set -e
ip link set lo up
shift
exec "$@"`

// A router: the server starts before there is a route to Google, or to a name server. When the
// route comes, the first threat is blocked within a minute. The time is logged.
func TestARouterIsProtectedSoonAfterItsRouteIsThere(t *testing.T) {
	testkit.Long(t)
	if os.Getenv(ownNetwork) == "" {
		t.Parallel()
		timeout := *routeAfter + routeWithin + time.Minute
		out := inNetwork(t, []string{"--net"}, enterWithoutRoute, "", "true", "-test.timeout="+timeout.String(), "-route.after="+routeAfter.String())
		_, told, _ := strings.Cut(out, "time to protection: ")
		told, _, _ = strings.Cut(told, "\n")
		t.Log("time to protection: " + told)
		return
	}
	w := newWorld(t)
	w.threaten("evil.example.net/")
	w.endpoint = behindRoute(t, w)
	names := nameServerBehindRoute(t)
	w.start(w.corefile("resolver " + names))
	w.wantPassed("evil.example.net.", dns.TypeA)
	time.Sleep(*routeAfter)
	w.wantPassed("evil.example.net.", dns.TypeA)
	inShell(t, "ip", "route", "add", "local", "198.51.100.0/24", "dev", "lo")
	came := time.Now()
	for !isBlocked(w.ask("evil.example.net.", dns.TypeA)) {
		if time.Since(came) > routeWithin {
			t.Fatalf("not protected %s after the route", routeWithin)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("time to protection: %s after the route, which came %s after the server", time.Since(came).Round(100*time.Millisecond), *routeAfter)
}

// behindRoute returns the URL of the world's server at an address to which there is no route yet.
func behindRoute(t *testing.T, w *world) string {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	testkit.Must(t, err)
	server := &http.Server{Handler: w.google}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	u := url.URL{Scheme: "http", Host: fmt.Sprintf("safebrowsing.example:%d", l.Addr().(*net.TCPAddr).Port)}
	return u.String()
}

// nameServerBehindRoute returns the address of a name server to which there is no route yet. It
// knows that all names are there.
func nameServerBehindRoute(t *testing.T) string {
	conn, err := net.ListenPacket("udp", "0.0.0.0:0")
	testkit.Must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if q := r.Question[0]; q.Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass, Ttl: 1}, A: net.IPv4(198, 51, 100, 7)}}
		}
		w.WriteMsg(m)
	})}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return fmt.Sprintf("198.51.100.53:%d", conn.LocalAddr().(*net.UDPAddr).Port)
}
