package test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// hurried is a CoreDNS that lives through hours in seconds, and its clients.
type hurried struct {
	*child
	clock *wrongClock
	since map[byte]time.Duration // what the clock was ahead when a client last asked for an ordinary name
}

// pass has time pass. What is due then begins with the next query: a system call that waits knows
// nothing of it.
func (h *hurried) pass(d time.Duration) { h.clock.lived.Add(int64(d.Seconds())) }

// asks has a client, of the machine, ask for names.
func (h *hurried) asks(client byte, names ...string) {
	h.t.Helper()
	from := dns.Client{Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 255, 254, client)}}, Timeout: 10 * time.Second}
	for _, name := range names {
		if _, _, err := from.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), h.address); err != nil {
			h.t.Fatal(err)
		}
		if name == "www.example.com." {
			h.since[client] = time.Duration(h.clock.lived.Load()) * time.Second
		}
	}
}

func (h *hurried) output() string {
	text, _ := os.ReadFile(h.clock.log)
	return string(text)
}

// Of four devices two use another resolver from different hours on. They, and no others, are told by the log, the
// door, status, the page and the metric, with their addresses; and that one of them is back.
func TestDevicesThatLeaveAreToldOverRealSockets(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t)
	h := &hurried{child: newChild(t, w), clock: newWrongClock(t, nil), since: make(map[byte]time.Duration)}
	page := testkit.FreeAddress(t, w.host)
	h.configure(".:0 {\n\tbind " + w.host + "\n\terrors\n\tsafebrowsing {\n\t\tblock " + writeFile(t, t.TempDir(), "own.txt", "blocked.example\n") +
		"\n\t\tdb " + w.db + "\n\t\tlog\n\t\tstatus " + page + " names\n\t}\n\tforward . " + w.upstream + "\n}\n")
	cmd := exec.Command(os.Args[0], "-conf", h.file)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	h.clock.start(t, cmd)
	testkit.Until(t, "the first answer", h.answers)
	const faithful, browser, first, second = 1, 2, 3, 4
	for range 45 {
		h.pass(time.Minute)
		for _, client := range []byte{faithful, browser, first, second} {
			h.asks(client, "www.example.com.")
		}
	}
	leaving := []byte{first}
	var told []byte // who has left, as the door says
	for range 48 {
		h.pass(20 * time.Minute)
		h.asks(faithful, "www.example.com.")
		h.asks(browser, "dns.google.", "www.example.com.")
		for _, client := range leaving {
			h.asks(client, "dns.google.")
		}
		if len(leaving) == 1 {
			h.asks(second, "www.example.com.")
			if h.clock.lived.Load() > int64((2 * time.Hour).Seconds()) {
				leaving = append(leaving, second)
			}
		}
		if told = h.left(w, told); len(told) == 2 {
			break
		}
	}
	if string(told) != string([]byte{first, second}) {
		t.Fatalf("Expected the devices 3 and 4 to be told in this order, got %v and\n%s", told, h.output())
	}
	h.wantTold(w, "http://"+page+"/", told)
	h.pass(time.Hour)
	h.asks(first, "www.example.com.")
	testkit.Until(t, "the line that one is back", func() bool {
		h.asks(faithful, "www.example.com.") // time passes with a query
		return strings.Contains(h.output(), "127.255.254.3, which asked for dns.google only, asks for other names again")
	})
}

// left returns who has left, in the order in which that was found. Each of them has asked for nothing but a
// resolver for three hours at least.
func (h *hurried) left(w *world, told []byte) []byte {
	h.t.Helper()
	for _, d := range w.told().Devices.Told {
		client := net.ParseIP(d.Client).To4()
		if client == nil || !d.Left || strings.Contains(string(told), string(client[3])) {
			continue
		}
		if quiet := time.Duration(h.clock.lived.Load())*time.Second - h.since[client[3]]; quiet < 3*time.Hour {
			h.t.Errorf("%s is told after %s: %s", d.Client, quiet, d)
		}
		told = append(told, client[3])
	}
	return told
}

// wantTold holds that all say the same.
func (h *hurried) wantTold(w *world, page string, told []byte) {
	h.t.Helper()
	testkit.Until(h.t, "the metric", func() bool { return h.metric(`coredns_safebrowsing_devices{state="left"}`) == float64(len(told)) })
	r := w.told()
	var text strings.Builder
	(&truth.Printer{W: &text, Tool: "safebrowsing"}).Short(&r)
	shown := get(h.t, page)
	for _, d := range r.Devices.Told {
		sentence := d.String()
		if d.Left && (!strings.Contains(text.String(), sentence) || !strings.Contains(shown, d.Client)) {
			h.t.Errorf("Expected status and the page to have %q, got\n%s\n%s", sentence, text.String(), shown)
		}
	}
	if r.Devices.Left != len(told) || r.Devices.Also != 1 {
		h.t.Errorf("Expected 2 devices that left and one that asks for a resolver, too, got %+v", r.Devices)
	}
	if n := strings.Count(h.output(), "it may not be protected"); n != len(told) || strings.Contains(h.output(), "127.255.254.1 ") {
		h.t.Errorf("Expected two lines, got\n%s", h.output())
	}
}
