package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/doh"

	_ "github.com/coredns/coredns/plugin/any"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cancel"
	_ "github.com/coredns/coredns/plugin/dns64"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/header"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/local"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/proxyproto"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/tls"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go/http3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// transports starts a CoreDNS that answers over each transport, with the same stanza, and returns how to ask over each but QUIC.
func transports(t *testing.T, stanza string) map[string]func(*dns.Msg) (*dns.Msg, error) {
	t.Helper()
	host := ownHost()
	startInstance(t, overAll(t, host, "safebrowsing {\n"+stanza+"\n}\nwhoami"))
	return asksOf(t, host, patience)
}

// startInstance starts a CoreDNS that is no world's, until the test ends.
func startInstance(t *testing.T, corefile string) {
	t.Helper()
	caddyMu.Lock()
	defer caddyMu.Unlock()
	instance, err := caddy.Start(input(corefile))
	testkit.Must(t, err)
	t.Cleanup(func() {
		caddyMu.Lock()
		defer caddyMu.Unlock()
		instance.ShutdownCallbacks()
		instance.Stop()
	})
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
	r, err := client.Post("https://"+address+doh.Path, doh.MimeType, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return doh.ResponseToMsg(r)
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
							wantReply(t, transport+", "+edns+", "+dns.TypeToString[qtype], mode, m, answer)
						}
					}
				}
			}
		})
	}
}

// wantReply fails unless an answer to a blocked query is the one of the mode.
func wantReply(t *testing.T, where, mode string, q, m *dns.Msg) {
	t.Helper()
	question := q.Question[0]
	header := dns.MsgHdr{Id: q.Id, Response: true, RecursionDesired: true, RecursionAvailable: true, CheckingDisabled: q.CheckingDisabled}
	header.Rcode = map[string]int{"nxdomain": dns.RcodeNameError, "refused": dns.RcodeRefused}[mode]
	testkit.Equal(t, where+": header", m.MsgHdr, header)
	testkit.Equal(t, where+": question", m.Question, q.Question)
	var answers, want []string
	for i, address := range strings.Fields(mode)[1:] {
		if qtype := []uint16{dns.TypeA, dns.TypeAAAA}[i]; question.Qtype == qtype || question.Qtype == dns.TypeANY {
			want = append(want, fmt.Sprintf("%s\t77\tIN\t%s\t%s", question.Name, dns.TypeToString[qtype], address))
		}
	}
	for _, rr := range m.Answer {
		answers = append(answers, rr.String())
	}
	testkit.Equal(t, where+": answers", answers, want)
	negative := len(want) == 0 && mode != "refused"
	testkit.Equal(t, where+": there is a SOA", len(m.Ns) == 1, negative)
	if negative && len(m.Ns) == 1 { // by which the answer is cacheable for the TTL
		soa := m.Ns[0].(*dns.SOA)
		testkit.Equal(t, where+": TTL and minimum of the SOA", [2]uint32{soa.Hdr.Ttl, soa.Minttl}, [2]uint32{77, 77})
		testkit.Equal(t, where+": the SOA of "+soa.Hdr.Name, dns.IsSubDomain(soa.Hdr.Name, question.Name), true)
	}
	asked, got := q.IsEdns0(), m.IsEdns0()
	if asked == nil || got == nil {
		testkit.Equal(t, where+": EDNS", got, asked)
		return
	}
	testkit.Equal(t, where+": EDNS", [3]any{got.Do(), got.Version(), got.UDPSize()}, [3]any{asked.Do(), uint8(0), asked.UDPSize()})
	text, blocked := ede(m)
	testkit.Equal(t, where+": EDE", [2]any{text, blocked}, [2]any{byOwn, true})
	testkit.Equal(t, where+": options, with Forged Answer", len(got.Option), 1+min(len(answers), 1))
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
	testkit.Equal(t, "blocked, truncated, records", [3]any{blocked, answer.Truncated, len(answer.Ns)}, [3]any{true, false, 1})
	testkit.Between(t, "bytes over UDP", answer.Len(), 1, 512)
	testkit.WantStart(t, text, "blocklist long-")
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

// chain are the plugins of cmd/coredns that wrap a writer, change the query, or read or write metadata, in the order of
// plugin.cfg, each with a line of its own. Those from cache on answer.
var chain = []struct{ name, line string }{
	{"metadata", "metadata"},
	{"cancel", "cancel 4s"},
	{"proxyproto", "proxyproto {\n\t\tdefault skip\n\t\ttlv_metadata\n\t}"},
	{"nsid", "nsid chain"},
	{"bufsize", "bufsize 1100"},
	{"prometheus", "prometheus 127.0.0.1:0"},
	{"errors", "errors"},
	{"log", `log . "{name} {/forward/upstream} {/safebrowsing/verdict} {/log/type} {/zone/wildcard} {duration}"`},
	{"dnstap", "dnstap SINK full {\n\t\textra \"{/forward/upstream} {/safebrowsing/verdict} {/zone/wildcard}\"\n\t}"},
	{"local", "local"},
	{"dns64", "dns64 {\n\t\tallow_ipv4\n\t}"},
	{"any", "any"},
	{"loadbalance", "loadbalance"},
	{"rewrite", "rewrite continue edns0 local set 0xffee {safebrowsing/verdict}\n\t" +
		"rewrite name suffix .alias.example .example.com answer auto"},
	{"acl", "acl {\n\t\tblock net 203.0.113.0/24\n\t}"},
	{say.Plugin, "STANZA"},
	{"cache", "cache 1"},
	{"header", "header {\n\t\tresponse set ra\n\t}"},
	{"minimal", "minimal"},
	{"template", "template IN A tmpl.example.com {\n\t\tanswer \"{{ .Name }} 1 IN A 192.0.2.7\"\n\t\tadditional \"m.{{ .Name }} 1 IN TXT \\\"{{ .Meta \\\"safebrowsing/verdict\\\" }}\\\"\"\n\t}"},
	{"file", "file ZONE wild.example.com"},
	{"forward", "forward . UPSTREAM"},
	{"view", "view chain {\n\t\texpr metadata('safebrowsing/verdict') != 'never'\n\t}"},
}

// orders are plugin.cfg's, and the same with this plugin at each other place that it allows, one with more writers
// above it, and random ones. Plugins that answer stay behind.
func orders(random int) (all [][]string) {
	var stock []string
	for _, p := range chain {
		stock = append(stock, p.name)
	}
	before, behind := stock[:slices.Index(stock, say.Plugin)], stock[slices.Index(stock, "cache"):]
	for i := range len(before) + 1 {
		all = append(all, slices.Concat(before[:i], []string{say.Plugin}, before[i:], behind))
	}
	all = append(all, slices.Concat(before, []string{"header", "minimal", say.Plugin, "cache", "template", "file", "forward", "view"}))
	r := rand.New(rand.NewPCG(1, 2))
	for range random {
		order := slices.Concat(before, []string{say.Plugin})
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		all = append(all, append(order, behind...))
	}
	return all
}

// stanzas are the ways to treat a name that collides.
var stanzas = []string{"", "inspect cname", "unsure servfail", "monitor", "monitor\n\t\tinspect cname", "unsure servfail\n\t\tinspect cname\n\t\texplain"}

// TestChainOfPluginsInEveryOrder is for the race detector, and without it for "concurrent map read and map write",
// which no recover catches: names that collide with a prefix are asked for at once over every transport, and verdicts
// come before the answer of upstream, after it, and too late.
func TestChainOfPluginsInEveryOrder(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	w := newWorld(t)
	w.collide(200)
	w.upstream = startUpstreamWith(t, func(q dns.Question) []dns.RR {
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		record := " CNAME host7.example.com."
		if q.Qtype == dns.TypeA {
			record = " A " + upstreamAddress
		}
		rr, _ := dns.NewRR(q.Name + " 1 IN" + record)
		return []dns.RR{rr}
	})
	sink := "tcp://" + dnstapSink(t, func([]byte) {})
	zone := writeFile(t, t.TempDir(), "zone", "wild.example.com. 1 IN SOA a. b. 1 1 1 1 1\n*.wild.example.com. 1 IN A 192.0.2.7\n")
	for i, order := range orders(6) {
		stanza := stanzas[i%len(stanzas)]
		t.Run(strings.Join(order, " ")+" with "+stanza, func(t *testing.T) {
			host, lines := ownHost(), ""
			for _, p := range chain {
				lines += "\t" + p.line + "\n"
			}
			own := fmt.Sprintf("safebrowsing {\n\t\tendpoint %s\n\t\tdb %s\n\t\tlimit off\n\t\tlists se-4b\n\t\tconfirm_timeout 15ms\n\t\t%s\n\t}", w.endpoint, w.db, stanza)
			text := strings.NewReplacer("SINK", sink, "STANZA", own, "UPSTREAM", w.upstream, "ZONE", zone).Replace(overAll(t, host, lines))
			w.google.ClientStarted()
			w.chainOf(t, order, host, text, !strings.Contains(stanza, "monitor"))
		})
	}
}

// collide publishes names host0.example.com to host(n-1).example.com and some for
// other plugins. All collide, and every third is a threat.
func (w *world) collide(n int) {
	var expressions []string
	for i := range n {
		for _, zone := range []string{"example.com/", "tmpl.example.com/", "wild.example.com/"} {
			expressions = append(expressions, fmt.Sprintf("host%d.%s", i, zone))
			if i%3 == 0 {
				w.google.AddThreat(expressions[len(expressions)-1], 2)
			}
		}
	}
	w.publish("se-4b", expressions...)
	w.google.SetCacheDuration(50 * time.Millisecond)
	for range 20_000 { // late ones too
		w.google.Break("search", 1, protocoltest.Fault{Delay: time.Duration(rand.IntN(20)) * time.Millisecond})
	}
}

// chainOf starts CoreDNS with its plugins in an order and asks.
func (w *world) chainOf(t *testing.T, order []string, host, corefile string, blocks bool) {
	stock := dnsserver.Directives
	dnsserver.Directives = append([]string{"root", "bind", "tls"}, order...)
	startInstance(t, corefile)
	dnsserver.Directives = stock
	testkit.Until(w.t, "the lists", w.ready)
	var clients sync.WaitGroup
	for transport, ask := range asksOf(t, host, 30*time.Second) {
		for range 4 {
			clients.Go(func() {
				for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
					askColliding(t, transport, ask, blocks)
				}
			})
		}
	}
	clients.Wait()
}

// askColliding asks for one of the names that collide. Which of them may be blocked is known; a verdict may always be late.
func askColliding(t *testing.T, transport string, ask func(*dns.Msg) (*dns.Msg, error), blocks bool) {
	i := rand.IntN(200)
	zone := []string{"example.com.", "tmpl.example.com.", "wild.example.com.", "alias.example."}[rand.IntN(4)]
	qtype := []uint16{dns.TypeA, dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeANY}[rand.IntN(5)]
	if zone == "alias.example." {
		qtype = dns.TypeA // dns64 before rewrite answers with the name as rewrite left it
	}
	m := new(dns.Msg).SetQuestion(fmt.Sprintf("host%d.%s", i, zone), qtype)
	m.SetEdns0(1232, rand.IntN(2) == 0)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
	answer, err := ask(m)
	switch {
	case err != nil:
		t.Errorf("%s: %v", transport, err)
	case answer.Id != m.Id || answer.Question[0] != m.Question[0]:
		t.Errorf("%s: Expected an answer to\n%v\ngot\n%v", transport, m, answer)
	case isBlocked(answer) && (!blocks || i%3 != 0 && qtype == dns.TypeA):
		t.Errorf("%s: Expected %v to pass, got\n%v", transport, m.Question[0], answer)
	}
}
