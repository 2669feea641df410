package safebrowsing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestAnAnswerThatHasExpiredRemainsForNoTime(t *testing.T) {
	now := time.Now() // -time.Minute: expired between the decision and its explanation
	for until, want := range map[time.Duration]string{time.Minute: "remaining=1m0s", 0: "remaining=0s", -time.Minute: "remaining=0s"} {
		if got := txtStrings((&status.Answer{Verdict: status.VerdictBlocked, Expires: now.Add(until)}).Words(now)); !slices.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", until, got, want)
		}
	}
}

// A name that somebody asks about is nobody's business upstream, also where CH or TXT was forgotten.
func TestWhyIsRefusedUnlessSetAndForOtherTypesAndClasses(t *testing.T) {
	for _, explain := range []bool{false, true} {
		inBubble(t, 0, func(s *SafeBrowsing) { s.block.Config.Explain = explain }, nil, func(t *testing.T, b *bubble) {
			for q, answered := range map[dns.Question]bool{
				{Name: "clean.example.why.safebrowsing.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}: explain,
				{Name: "clean.example.why.safebrowsing.", Qtype: dns.TypeTXT, Qclass: dns.ClassINET}:  false,
				{Name: "clean.example.Why.SafeBrowsing.", Qtype: dns.TypeA, Qclass: dns.ClassINET}:    false,
				{Name: "clean.example.why.safebrowsing.", Qtype: dns.TypeA, Qclass: dns.ClassCHAOS}:   false,
			} {
				rcode, w := map[bool]int{false: dns.RcodeRefused, true: dns.RcodeSuccess}[answered], new(recorder)
				b.plugin.ServeDNS(t.Context(), w, &dns.Msg{Question: []dns.Question{q}})
				if len(w.msgs) != 1 || w.msgs[0].Rcode != rcode || (len(w.msgs[0].Answer) == 1) != answered {
					t.Errorf("explain %v, %v: Expected %s, got %v", explain, q, dns.RcodeToString[rcode], w.msgs)
				}
			}
		})
	}
}

// Of a name that is suspected why says what clients get, and of another one that a list is missing.
func TestWhyOfANameThatIsNotConfirmed(t *testing.T) {
	testkit.Capture(t)
	for fails, want := range map[bool]string{false: "suspected, passes for now: ", true: "suspected, gets SERVFAIL for now: "} {
		alter := func(s *SafeBrowsing) { s.block.Config.UnsureFails, s.block.Settings.Lists = fails, "se-4b mw-4b" }
		inBubble(t, 0, alter, []string{"evil.example/"}, func(t *testing.T, b *bubble) {
			time.Sleep(24 * time.Hour) // the server has no mw-4b
			b.google.Break("search", 1<<30, protocoltest.Fault{Status: 429})
			b.ask("192.0.2.1", "evil.example.")
			for name, want := range map[string]string{"evil.example.": want, "clean.example.": "no threat list has it, but not all lists are here"} {
				if got := b.plugin.block.Why(lookup.FromQname(name)); !strings.HasPrefix(got.Note, want) {
					t.Errorf("%s: Expected %q, got %+v", name, want, got)
				}
			}
		})
	}
}

// A string of a TXT record has at most 255 bytes (RFC 1035 section 3.3). What is longer goes
// on in the next string, and the strings of a value put together are the value.
func TestALongNoteIsDividedBetweenWords(t *testing.T) {
	long := strings.Repeat(`dial tcp "a\b": connection refused; `, 20) // a backslash begins an escape
	for name, tc := range map[string]struct{ note, want string }{
		"of words":         {long, long},
		"of one word":      {strings.Repeat("0123456789", 60), strings.Repeat("0123456789", 60)},
		"of other scripts": {strings.Repeat("зона", 90), strings.Repeat("зона", 90)},
		"without an end":   {strings.Repeat("word ", 1000), strings.Repeat("word ", 198) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(dns.Msg).SetQuestion("example.org.", dns.TypeTXT)
			m.Answer = []dns.RR{&dns.TXT{
				Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS},
				Txt: txtStrings((&status.Answer{Note: tc.note}).Words(time.Now())),
			}}
			wire, err := m.Pack()
			testkit.Must(t, err)
			testkit.Must(t, m.Unpack(wire))
			texts := stringsOf(wire[len(wire)-int(m.Answer[0].Header().Rdlength):])
			i := slices.IndexFunc(texts, func(s string) bool { return strings.HasPrefix(s, "note=") })
			for _, s := range texts[i : len(texts)-1] {
				if strings.Contains(tc.note, " ") && !strings.HasSuffix(s, " ") {
					t.Errorf("%q ends within a word", s)
				}
			}
			if got := strings.Join(texts[i:], ""); got != "note="+tc.want {
				t.Errorf("got %q, want %q", got, "note="+tc.want)
			}
		})
	}
}

func stringsOf(data []byte) (all []string) {
	for len(data) > 0 {
		end := 1 + int(data[0])
		all, data = append(all, string(data[1:end])), data[end:]
	}
	return all
}

func TestWrongPlaceInTheOrderIsRefused(t *testing.T) {
	for directives, ok := range map[string]bool{
		"errors acl safebrowsing cache forward":          true,
		"errors":                                         true, // not compiled in by name: nothing to say
		"errors acl cache safebrowsing forward":          false,
		"errors cache forward on sign view safebrowsing": false,
		"errors hosts safebrowsing":                      false,
	} {
		if err := checkPosition(strings.Fields(directives)); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "plugin.cfg") {
			t.Errorf("%s: Expected ok %v, or advice, got %v", directives, ok, err)
		}
	}
}

// A block of before must not hand its queries to one that may have other rules for these clients.
func TestOnlyOneBlockTakesAPlace(t *testing.T) {
	block := func(view, address string, keys ...string) *SafeBrowsing {
		return &SafeBrowsing{place: place{keys, []string{address}, view}}
	}
	const tls, quic, h3 = "tls://.:853", "quic://.:853", "https3://.:443"
	before := block("", "::1", tls, quic)
	for name, tc := range map[string]struct {
		later []*SafeBrowsing
		want  int // in later; -1: none
	}{
		"the same":               {[]*SafeBrowsing{block("", "::2", tls, quic), block("", "::1", tls, quic)}, 1},
		"another address":        {[]*SafeBrowsing{block("", "::2", tls, quic), block("", "::2", h3)}, 0},
		"one key more":           {[]*SafeBrowsing{block("", "::1", "dns://.:53"), block("", "::1", tls, quic, h3)}, 1},
		"two at other addresses": {[]*SafeBrowsing{block("", "::2", quic), block("", "::3", quic)}, -1},
		"over TLS only":          {[]*SafeBrowsing{block("", "::1", tls)}, -1},
		"another view":           {[]*SafeBrowsing{block("kids", "::1", tls, quic)}, -1},
		"another zone":           {[]*SafeBrowsing{block("", "::1", "quic://a.:853")}, -1},
	} {
		var want *SafeBrowsing
		if tc.want >= 0 {
			want = tc.later[tc.want]
		}
		testkit.Equal(t, name, before.place.successor(tc.later), want)
	}
}
