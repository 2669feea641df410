//go:build linux && amd64

package crash

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/miekg/dns"

	_ "github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// serverVariable has this test binary be a server, with the first contact at once. Its value
// is "coredns", or for a relay the endpoint that it asks.
const serverVariable = "CRASH_SERVER"

// runServer reports whether this process is such a server, after its end.
func runServer() bool {
	atOnce := func() time.Duration { return 0 }
	switch server := os.Getenv(serverVariable); server {
	case "":
		return false
	case "coredns":
		dnsserver.Directives = []string{"bind", "errors", say.Plugin, "template"}
		engine.ForTests{Registry: engine.Default}.SetFirstContact(atOnce)
		coremain.Run()
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := relay.Run(ctx, relay.Config{
			Settings: engine.Settings{Endpoint: server, Protocol: protocol.DialectV5.Name, Lists: config.DefaultLists, DB: place{os.Getenv(placeVariable)}.db()},
			Edge:     engine.Edge{FirstContact: atOnce}, Listen: os.Getenv(addressVariable),
		}, func(net.Addr, net.Addr) {})
		if err != nil {
			fmt.Println(err)
		}
	}
	return true
}

// addressVariable is where a relay listens.
const addressVariable = "CRASH_ADDRESS"

// served is a server in a process of its own that is traced, and the Safe Browsing server that
// it asks.
type served struct {
	t        *testing.T
	place    place
	google   *protocoltest.Server
	endpoint string
	address  string
	tracer   *tracer
}

func newServed(t *testing.T) *served {
	t.Helper()
	s := &served{tracer: new(tracer), t: t, place: newPlace(t), google: protocoltest.New(t), address: testkit.FreeAddress(t, "127.0.0.1")}
	for _, folder := range s.place.folders() {
		must(t, os.MkdirAll(folder, 0o700))
	}
	server := httptest.NewServer(s.google)
	t.Cleanup(server.Close)
	s.endpoint = server.URL
	for _, list := range strings.Fields(config.DefaultLists) {
		s.google.SetMinimumWait(list, time.Hour)
		s.google.Publish(list, [][]byte{{1, 2, 3, 4}})
	}
	s.google.AddThreat("evil.example/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	hash := sha256.Sum256([]byte("evil.example/"))
	s.google.Publish("se-4b", [][]byte{hash[:4]})
	return s
}

// corefile returns a Corefile with some more properties.
func (s *served) corefile(properties ...string) string {
	_, port, _ := net.SplitHostPort(s.address)
	return fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	errors
	safebrowsing {
		endpoint %s
		db %s
		confirm_timeout 4s
		%s
	}
	template IN A {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
}
`, port, s.endpoint, s.place.db(), strings.Join(properties, "\n\t\t"))
}

// configure writes the Corefile as a whole.
func (s *served) configure(corefile string) {
	s.t.Helper()
	file := filepath.Join(s.place.root, "Corefile")
	must(s.t, os.WriteFile(file+".new", []byte(corefile), 0o600))
	must(s.t, os.Rename(file+".new", file))
}

// coredns returns the command of a CoreDNS with the Corefile.
func (s *served) coredns() *exec.Cmd {
	return s.command("coredns", "-conf", filepath.Join(s.place.root, "Corefile"))
}

// relay returns the command of a relay.
func (s *served) relay() *exec.Cmd { return s.command(s.endpoint) }

func (s *served) command(server string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), serverVariable+"="+server, placeVariable+"="+s.place.root, addressVariable+"="+s.address,
		"RUNTIME_DIRECTORY="+s.place.spare(), "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// output returns what the server has printed.
func (s *served) output() string {
	raw, _ := os.ReadFile(s.tracer.output)
	return string(raw)
}

// blocks asks for a name and reports whether it is blocked.
func (s *served) blocks(name string) (bool, error) {
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: 5 * time.Second}).Exchange(m, s.address)
	return err == nil && answer.Rcode == dns.RcodeNameError, err
}
