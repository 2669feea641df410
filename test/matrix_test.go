package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	_ "github.com/coredns/coredns/plugin/tls"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go/http3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// transports starts a CoreDNS that answers over each transport, with the same stanza, and returns how to ask over
// each but QUIC.
func transports(t *testing.T, stanza string) map[string]func(*dns.Msg) (*dns.Msg, error) {
	t.Helper()
	_, asks := transportsAt(t, stanza)
	return asks
}

// transportsAt is transports, and returns the host.
func transportsAt(t *testing.T, stanza string) (host string, asks map[string]func(*dns.Msg) (*dns.Msg, error)) {
	t.Helper()
	host = ownHost()
	caddyMu.Lock()
	instance, err := caddy.Start(input(overAll(t, host, "safebrowsing {\n"+stanza+"\n}\nwhoami")))
	caddyMu.Unlock()
	testkit.Must(t, err)
	t.Cleanup(func() { end(instance) })
	return host, asksOf(t, host, patience)
}

// end ends an instance that is no world's.
func end(instance *caddy.Instance) {
	caddyMu.Lock()
	defer caddyMu.Unlock()
	instance.ShutdownCallbacks()
	instance.Stop()
}

// asksOf returns how to ask a host that serves each transport. Who asks waits so long for an answer.
func asksOf(t *testing.T, host string, patience time.Duration) map[string]func(*dns.Msg) (*dns.Msg, error) {
	all := make(map[string]func(*dns.Msg) (*dns.Msg, error))
	for _, tr := range differentialTransports {
		if tr.name == "QUIC" { // queries have no ID there
			continue
		}
		all[strings.ToLower(tr.name)] = func(m *dns.Msg) (*dns.Msg, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return tr.ask(ctx, fmt.Sprintf("%s:%d", host, tr.port), &tls.Config{InsecureSkipVerify: true}, m) // the certificate is our own
		}
	}
	return all
}

func askHTTP3(_ context.Context, address string, trust *tls.Config, m *dns.Msg) (*dns.Msg, error) {
	over := &http3.Transport{TLSClientConfig: trust}
	defer over.Close()
	raw, err := m.Pack()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: over, Timeout: 10 * time.Second}
	r, err := client.Post("https://"+address+"/dns-query", "application/dns-message", bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer := new(dns.Msg)
	return answer, answer.Unpack(body)
}

// ednses are the kinds of clients.
var ednses = map[string]func(*dns.Msg){
	"no EDNS": func(*dns.Msg) {},
	"512":     func(m *dns.Msg) { m.SetEdns0(512, false) },
	"1232":    func(m *dns.Msg) { m.SetEdns0(1232, false) },
	"DO":      func(m *dns.Msg) { m.SetEdns0(1232, true) },
	"CD":      func(m *dns.Msg) { m.SetEdns0(1232, false); m.CheckingDisabled = true },
	"unknown option": func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65002, Data: []byte("x")}}
	},
}

// TestEveryModeTypeClientAndTransport is the matrix of all ways to be blocked.
func TestEveryModeTypeClientAndTransport(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a23456789012345678901234567890123456789012345678901234567890123.", 3) + "blocked.example."
	for _, mode := range []string{"nxdomain", "nodata", "refused", "sinkhole 192.0.2.66 2001:db8::66", "sinkhole 192.0.2.66"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			for transport, ask := range transports(t, blockList(t, "blocked.example")+"\nttl 77s\nrespond "+mode) {
				for edns, prepare := range ednses {
					for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCNAME, dns.TypeANY} {
						for _, qname := range []string{"bLocked.example.", long} {
							m := new(dns.Msg).SetQuestion(qname, qtype)
							prepare(m)
							answer, err := ask(m)
							if err != nil {
								t.Fatalf("%s %s: %v", transport, edns, err)
							}
							if problem := problemOf(mode, m, answer); problem != "" {
								t.Errorf("%s, %s, %s: %s in\n%v", transport, edns, dns.TypeToString[qtype], problem, answer)
							}
						}
					}
				}
			}
		})
	}
}

// problemOf returns what is wrong with an answer to a blocked query, or "".
func problemOf(mode string, q, m *dns.Msg) string {
	question := q.Question[0]
	wantRcode := map[string]int{"nxdomain": dns.RcodeNameError, "refused": dns.RcodeRefused}[mode]
	var wantAnswer []string
	if strings.HasPrefix(mode, "sinkhole") {
		if question.Qtype == dns.TypeA || question.Qtype == dns.TypeANY {
			wantAnswer = append(wantAnswer, "192.0.2.66")
		}
		if strings.Contains(mode, ":") && (question.Qtype == dns.TypeAAAA || question.Qtype == dns.TypeANY) {
			wantAnswer = append(wantAnswer, "2001:db8::66")
		}
	}
	var answers []string
	for _, rr := range m.Answer {
		answers = append(answers, strings.Fields(rr.String())[4])
		if h := rr.Header(); h.Ttl != 77 || h.Name != question.Name {
			return "TTL or owner of an answer"
		}
	}
	negative := len(wantAnswer) == 0 && mode != "refused"
	switch {
	case m.Rcode != wantRcode || !slices.Equal(answers, wantAnswer):
		return fmt.Sprintf("rcode or answers, want %s and %v", dns.RcodeToString[wantRcode], wantAnswer)
	case m.Id != q.Id || !m.Response || !m.RecursionDesired || !m.RecursionAvailable || m.Truncated || m.AuthenticatedData || m.CheckingDisabled != q.CheckingDisabled:
		return "bits"
	case len(m.Question) != 1 || m.Question[0] != question:
		return "question"
	case negative != (len(m.Ns) == 1):
		return "SOA"
	case negative && (m.Ns[0].Header().Ttl != 77 || m.Ns[0].(*dns.SOA).Minttl != 77 || !dns.IsSubDomain(m.Ns[0].Header().Name, question.Name)):
		return "SOA that does not make the answer cacheable for the TTL"
	}
	return problemOfEDNS(q, m)
}

func problemOfEDNS(q, m *dns.Msg) string {
	asked, got := q.IsEdns0(), m.IsEdns0()
	if asked == nil {
		if got != nil {
			return "EDNS to a client without"
		}
		return ""
	}
	if got == nil || got.Do() != asked.Do() || got.Version() != 0 || got.UDPSize() != asked.UDPSize() {
		return "EDNS"
	}
	if text, blocked := ede(m); !blocked || text != byOwn {
		return "EDE"
	}
	options := 1
	if len(m.Answer) > 0 { // Forged Answer, too
		options = 2
	}
	if len(got.Option) != options {
		return "options"
	}
	return ""
}

func TestAnswersThatWouldNotFitLoseWordsNotRecords(t *testing.T) {
	long := strings.Repeat("a23456789012345678901234567890123456789012345678901234567890123.", 3) + "blocked-by-a-list.example."
	file := writeFile(t, t.TempDir(), strings.Repeat("long-", 45)+".txt", long)
	asks := transports(t, "block "+file)
	m := new(dns.Msg).SetQuestion(long, dns.TypeA)
	m.SetEdns0(512, false)
	answer, err := asks["udp"](m)
	testkit.Must(t, err)
	text, blocked := ede(answer)
	answer.Compress = true // as it was on the wire
	if !blocked || answer.Truncated || len(answer.Ns) != 1 || answer.Len() > 512 || !strings.HasPrefix(text, "blocklist long-") {
		t.Errorf("Expected an answer of 512 bytes with as much text as fits, got %d bytes and %q", answer.Len(), text)
	}
	answer, err = asks["tcp"](m)
	testkit.Must(t, err)
	text, _ = ede(answer)
	testkit.Equal(t, "bytes of the text over TCP", len(text), 200)
}

func TestPaddingIsAnsweredWithPadding(t *testing.T) {
	asks := transports(t, blockList(t, "blocked.example"))
	m := query("www.blocked.example.", dns.TypeA)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_PADDING{Padding: make([]byte, 20)}}
	for transport, ask := range asks {
		answer, err := ask(m)
		testkit.Must(t, err)
		testkit.Equal(t, transport+": padding everywhere but over UDP", answer.Len()%468 == 0, transport != "udp")
	}
}
