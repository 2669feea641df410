package test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// hurried is a CoreDNS that lives through hours in seconds, and its clients.
type hurried struct {
	*wrongClock
	since map[byte]time.Duration // what the clock was ahead when a client last asked for an ordinary name
}

const ordinary = "www.example.com."

func (h *hurried) ahead() time.Duration { return time.Duration(h.lived.Load()) * time.Second }

// pass lets time pass. What is due then begins with the next query: a system call that waits knows nothing of it.
func (h *hurried) pass(d time.Duration) { h.lived.Add(int64(d.Seconds())) }

// asks asks for names as a client, an address of this machine.
func (h *hurried) asks(client byte, names ...string) {
	h.t.Helper()
	from := clientAt(fmt.Sprint("127.255.254.", client))
	for _, name := range names {
		_, _, err := from.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), h.address)
		testkit.Must(h.t, err)
		if name == ordinary {
			h.since[client] = h.ahead()
		}
	}
}

// Of four devices two use another resolver from different hours on. They, and no others, are told by the log, the
// door, status, the page and the metric, with their addresses; and that one of them is back.
func TestDevicesThatLeaveAreToldOverRealSockets(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t)
	h := &hurried{newWrongClock(newChild(t, w)), make(map[byte]time.Duration)}
	page := testkit.FreeAddress(t, w.host)
	h.configure(".:0 {\n\tbind " + w.host + "\n\terrors\n\tsafebrowsing {\n\t\t" + blockList(t, "blocked.example") +
		"\n\t\tdb " + w.db + "\n\t\tlog\n\t\tstatus " + page + " names\n\t}\n\tforward . " + w.upstream + "\n}\n")
	h.start()
	const faithful, browser, first, second = 1, 2, 3, 4
	for range 45 {
		h.pass(time.Minute)
		for _, client := range []byte{faithful, browser, first, second} {
			h.asks(client, ordinary)
		}
	}
	var told []byte // who has left, as the door says
	for range 48 {
		h.pass(20 * time.Minute)
		h.asks(faithful, ordinary)
		h.asks(browser, "dns.google.", ordinary)
		h.asks(first, "dns.google.")
		if h.ahead() <= 2*time.Hour {
			h.asks(second, ordinary)
		} else {
			h.asks(second, "dns.google.")
		}
		if told = h.left(w, told); len(told) == 2 {
			break
		}
	}
	testkit.Equal(t, "the devices that are told, in this order", told, []byte{first, second})
	h.wantTold(w, "http://"+page+"/", told)
	testkit.Until(t, "the line that one is back", func() bool {
		h.pass(time.Minute)
		h.asks(first, ordinary)
		return strings.Contains(h.out.String(), "127.255.254.3, which asked for dns.google only, asks for other names again")
	})
}

// left returns who has left, in the order in which that was found. Each of them has asked for nothing but a
// resolver for three hours at least.
func (h *hurried) left(w *world, told []byte) []byte {
	h.t.Helper()
	for _, d := range w.told().Devices.Told {
		client := net.ParseIP(d.Client).To4()
		if client == nil || !d.Left || slices.Contains(told, client[3]) {
			continue
		}
		if quiet := h.ahead() - h.since[client[3]]; quiet < 3*time.Hour {
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
		if d.Left && (!strings.Contains(text.String(), d.String()) || !strings.Contains(shown, d.Client)) {
			h.t.Errorf("Expected status and the page to have %q, got\n%s\n%s", d, text.String(), shown)
		}
	}
	if r.Devices.Left != len(told) || r.Devices.Also != 1 {
		h.t.Errorf("Expected 2 devices that left and one that asks for a resolver, too, got %+v", r.Devices)
	}
	if out := h.out.String(); strings.Count(out, "it may not be protected") != len(told) || strings.Contains(out, "127.255.254.1 ") {
		h.t.Error("Expected a line for each device that left, and none for one that did not") // the output follows
	}
}
