package story

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The story of a machine that boots without a way to Google: the service has started as soon as the port
// listens, and the service manager shows what status says.
func TestTheServiceManagerIsTold(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	programs := programs(t)
	dir := t.TempDir()
	socket := &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}
	manager, err := net.ListenUnixgram("unixgram", socket)
	testkit.Must(t, err)
	defer manager.Close()
	var server *testkit.Process
	hears := func(text string) {
		t.Helper()
		buffer := make([]byte, 1000)
		manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := manager.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != text {
			t.Fatalf("the service manager heard %q, %v; want %q\n%s", got, err, text, server.Output())
		}
	}
	port, db := testkit.FreePort(t), filepath.Join(dir, "db")
	file := testkit.Write(t, dir, "Corefile", fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	safebrowsing {
		endpoint http://127.0.0.1:%s
		api_key AIzaKEY
		db %s
	}
	template ANY ANY {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
}
`, port, testkit.FreePort(t), db))
	server = testkit.StartWith(t, []string{"NOTIFY_SOCKET=" + socket.Name}, programs["coredns"], "-conf", file)
	hears("READY=1")
	// Over TCP no answer is lost on a busy machine: nobody listens, or there is one.
	if answer, _, err := (&dns.Client{Net: "tcp", Timeout: time.Minute}).Exchange(new(dns.Msg).SetQuestion("example.org.", dns.TypeA), "127.0.0.1:"+port); err != nil || len(answer.Answer) != 1 {
		t.Errorf("a service that has started answers %v, %v", answer, err)
	}
	const headline = "NOT protected: no list of Safe Browsing v5 is in force"
	hears("READY=1\nSTATUS=" + headline)
	if _, out := testkit.Run(t, programs["safebrowsing"], "status", "-db", db); !strings.HasPrefix(out, headline+", since ") {
		t.Errorf("status says otherwise:\n%s", out)
	}
	server.Stop()
	hears("STOPPING=1")
}
