package answer

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Google's words, without which nothing of Google's may be told.
var wordsOfGoogle = []string{"suspected", "advisory provided by Google", "https://developers.google.com/safe-browsing/v4/advisory"}

var (
	phishingByGoogle = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.SocialEngineering, List: "se-4b"}
	harmfulByGoogle  = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.PotentiallyHarmfulApplication, List: "pha-4b"}
	blockedByOwn     = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, List: "/etc/coredns/own.txt"}
)

// parsed returns the JSON of a text, which must be all of it.
func parsed(t *testing.T, text string) (e structuredError) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || d.More() {
		t.Fatalf("Expected JSON, got %q: %v", text, err)
	}
	return e
}

func TestStructuredTextsLoseWordsFirstButNeverThoseOfGoogle(t *testing.T) {
	contacts := []string{"mailto:help@example.org", "tel:+1-555-0100"}
	long := []string{"mailto:" + strings.Repeat("a", 450) + "@example.org"}
	words := ofGoogle.Cause
	for _, tc := range []struct {
		name     string
		contacts []string
		d        lookup.Decision
		google   bool
		want     []structuredError // and then no text at all
	}{
		{"Google", contacts, phishingByGoogle, true, []structuredError{
			{contacts, "suspected social engineering (Safe Browsing)" + advisory, suberrorPhishing, "en"},
			{nil, "suspected social engineering (Safe Browsing)" + advisory, suberrorPhishing, "en"},
		}},
		{"Google, no contacts", nil, harmfulByGoogle, true, []structuredError{
			{nil, "suspected potentially harmful application (Safe Browsing)" + advisory, suberrorMalware, "en"},
		}},
		{"Google, contacts that are too long", long, phishingByGoogle, true, []structuredError{
			{nil, "suspected social engineering (Safe Browsing)" + advisory, suberrorPhishing, "en"},
		}},
		{"another server", contacts, phishingByGoogle, false, []structuredError{
			{contacts, words(phishingByGoogle), suberrorPhishing, "en"},
			{contacts, "", suberrorPhishing, ""},
			{nil, "", suberrorPhishing, ""},
		}},
		{"a list of the operator's own", contacts, blockedByOwn, true, []structuredError{
			{contacts, "blocklist own.txt", suberrorDNSOperator, "en"},
			{contacts, "", suberrorDNSOperator, ""},
			{nil, "", suberrorDNSOperator, ""},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			texts := Reply{Structured: Structured{Code: 65010, Contacts: tc.contacts}}.by(tc.google).structured(tc.d)
			if len(texts) != len(tc.want)+1 || texts[len(texts)-1] != "" {
				t.Fatalf("Expected %d texts and an empty one, got %q", len(tc.want), texts)
			}
			for i, want := range tc.want {
				got := parsed(t, texts[i])
				if !slices.Equal(got.Contacts, want.Contacts) || got.Justification != want.Justification || got.Suberror != want.Suberror || got.Language != want.Language {
					t.Errorf("Expected %+v, got %+v", want, got)
				}
			}
		})
	}
}

// startBlocking starts a name server that blocks every name by one decision.
func startBlocking(t *testing.T, p Reply, d lookup.Decision) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := p.Blocked(context.Background(), w, r, d)
		m.Compress = true
		w.WriteMsg(m)
	})}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return conn.LocalAddr().String()
}

// nameOf returns a name of about n bytes.
func nameOf(length int) string {
	name := "x.example."
	for len(name) < length {
		label := min(63, max(1, length-len(name)-1))
		name = strings.Repeat("a", label) + "." + name
	}
	return name
}

// Over UDP the longest text that fits is sent, whatever the name and the size that
// the client takes, and never a text of Google's without Google's words.
func TestStructuredErrorsFitIntoUDP(t *testing.T) {
	for _, tc := range []struct {
		name   string
		d      lookup.Decision
		google bool
		Mode   lookup.Response
		none   bool // with the longest names there is no text at all
	}{
		{"Google", phishingByGoogle, true, lookup.NXDOMAIN, false},
		{"Google, the longest words", harmfulByGoogle, true, lookup.NXDOMAIN, true},
		{"Google, refused", harmfulByGoogle, true, lookup.Refused, false},
		{"another server", phishingByGoogle, false, lookup.NXDOMAIN, false},
		{"own list", blockedByOwn, true, lookup.NODATA, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Structured{Code: 65010, Contacts: []string{"mailto:" + strings.Repeat("a", 200) + "@example.org", "tel:+1-555-0100"}}
			p := Reply{Respond: tc.Mode, TTL: time.Minute, Structured: s}.by(tc.google)
			address, texts := startBlocking(t, p, tc.d), p.structured(tc.d)
			used := make(map[string]bool)
			for _, size := range []int{512, 560, 620, 700, 1232, 4096} {
				for length := 10; length < 254; length += 9 {
					text, bytes := askStructured(t, address, nameOf(length), size)
					used[text] = true
					i := slices.Index(texts, text)
					if i < 0 || bytes > size {
						t.Fatalf("Size %d, name of %d: got %d bytes with %q", size, length, bytes, text)
					}
					if i > 0 && bytes-len(text)+len(texts[i-1]) <= size {
						t.Errorf("Size %d, name of %d: got %q in %d bytes, where %q would have fitted", size, length, text, bytes, texts[i-1])
					}
					for _, word := range wordsOfGoogle {
						if tc.google && tc.d.By == lookup.ByServer && text != "" && !strings.Contains(text, word) {
							t.Errorf("Size %d, name of %d: got %q without %q", size, length, text, word)
						}
					}
				}
			}
			if !used[texts[0]] || !used[texts[1]] || used[""] != tc.none {
				t.Errorf("Expected the texts with and without contacts, and none: %v, got %v", tc.none, used)
			}
		})
	}
}

// askStructured returns the text of an answer and the size of the answer.
func askStructured(t *testing.T, address, name string, size int) (text string, bytes int) {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	m.SetEdns0(uint16(size), false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
	raw, err := m.Pack()
	testkit.Must(t, err)
	conn, err := net.Dial("udp", address)
	testkit.Must(t, err)
	defer conn.Close()
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, err := conn.Read(buf)
	answer := new(dns.Msg)
	if err != nil || answer.Unpack(buf[:n]) != nil || answer.Truncated {
		t.Fatalf("%s: %v\n%v", name, err, answer)
	}
	return answer.IsEdns0().Option[0].(*dns.EDNS0_EDE).ExtraText, n
}
