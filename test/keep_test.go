package test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// leadingUpstream starts a name server that invites clients to ask it directly, as public resolvers do (RFC 9462).
func leadingUpstream(t testing.TB) string { return startUpstreamWith(t, leadAway) }

func leadAway(q dns.Question) []dns.RR {
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 300}
	switch {
	case q.Qtype == dns.TypeSVCB && strings.EqualFold(q.Name, "_dns.resolver.arpa."):
		return []dns.RR{&dns.SVCB{Hdr: header, Priority: 1, Target: "dns.upstream.example.", Value: []dns.SVCBKeyValue{
			&dns.SVCBAlpn{Alpn: []string{"dot"}}, &dns.SVCBPort{Port: 853}, &dns.SVCBIPv4Hint{Hint: []net.IP{net.ParseIP("192.0.2.9")}},
		}}}
	case q.Qtype == dns.TypeA:
		return []dns.RR{&dns.A{Hdr: header, A: net.ParseIP(upstreamAddress)}}
	}
	return nil
}

const designation = "_dns.resolver.arpa."

func brief(m *dns.Msg) string { return fmt.Sprint(dns.RcodeToString[m.Rcode], " ", len(m.Answer)) }

func (w *world) wantKept(name string, kept bool) {
	w.t.Helper()
	qtype, want := dns.TypeA, "NXDOMAIN 0"
	if name == designation {
		qtype, want = dns.TypeSVCB, "NOERROR 0"
	}
	if !kept {
		want = "NOERROR 1"
	}
	testkit.Equal(w.t, name, brief(w.ask(name, qtype)), want)
}

func TestClientsAreLedAwayOnlyWhereTheCorefileSaysSo(t *testing.T) {
	for _, tc := range []struct {
		word           string
		zone, canaries bool
		line           string
	}{
		{"# no keep_clients", true, false, "Clients are kept here in part: resolver.arpa is not forwarded. keep_clients answers these here, too: use-"},
		{"keep_clients", true, true, "Clients are kept here: resolver.arpa is not forwarded; and there are no use-application-dns.net,"},
		{"keep_clients off", false, false, "keep_clients off: resolver.arpa is forwarded"},
	} {
		t.Run(strings.TrimPrefix(tc.word, "# "), func(t *testing.T) {
			lines := testkit.Capture(t)
			w := newWorld(t)
			w.upstream = leadingUpstream(t)
			w.run(tc.word, "status 127.0.0.1:0")
			w.wantKept(designation, tc.zone)
			for _, k := range answer.KeptNames[1:] {
				w.wantKept(k.Name, tc.canaries)
			}
			w.wantPassed("icloud.com.", dns.TypeA)
			w.wantPassed("www.google.com.", dns.TypeA)
			lines.Only(t, tc.line)
			r, page, off := w.told(), w.pageURL(lines), "keep_clients off: resolver.arpa is forwarded"
			var status strings.Builder
			(&truth.Printer{W: &status, Tool: "safebrowsing"}).Long(&r)
			testkit.Equal(t, "the door tells that clients are led away", r.Blocks[0].Led, !tc.zone)
			for who, text := range map[string]string{"status": status.String(), "the page": get(t, page)} {
				testkit.Equal(t, who+" tells that clients are led away", strings.Contains(text, off), !tc.zone)
			}
			testkit.WantParts(t, get(t, page+"status.json"), fmt.Sprintf(`"led_away":%t`, !tc.zone))
		})
	}
}

func TestKeptNamesAreCountedAndExplained(t *testing.T) {
	w := newWorld(t)
	w.upstream = leadingUpstream(t)
	w.run("keep_clients", "explain", "respond sinkhole 192.0.2.1", "block "+writeFile(t, t.TempDir(), "own.txt", "mask.icloud.com\n"))
	kept := map[string]float64{"resolver_arpa": 1, "firefox": 1, "private_relay": 2, "chrome_prefetch": 1}
	for reason := range kept {
		kept[reason] += testkit.Metric(t, "kept_total", "reason", reason)
	}
	w.wantKept(designation, true)
	for _, k := range answer.KeptNames[1:] {
		w.wantKept(k.Name, true) // although an own list and respond would have another answer
	}
	for reason, want := range kept {
		testkit.Equal(t, reason, testkit.Metric(t, "kept_total", "reason", reason), want)
	}
	testkit.WantParts(t, w.why("mask.icloud.com"), "Private Relay")
	testkit.WantParts(t, w.why("_dns.resolver.arpa"), "not forwarded")
}

// A pause ends, but a phone that was led away would not come back.
func TestAPauseLetsCanariesPassAndLeadsNoClientAway(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	w.upstream = leadingUpstream(t)
	w.recipe("docs/clients.md", "Names that keep clients here")
	w.updated(1)
	w.wantKept("mask.icloud.com.", true)
	w.paused(".", time.Hour)
	testkit.Until(w.t, "a canary to pass", func() bool { return w.ask("mask.icloud.com.", dns.TypeA).Rcode == dns.RcodeSuccess })
	w.wantKept(designation, true)
}

// encrypting starts a CoreDNS that answers without encryption and over TLS, QUIC and HTTPS at one
// address, with a certificate for that and for dns.home.example, which is its own authority.
func (w *world) encrypting(properties ...string) (authority string) {
	w.t.Helper()
	cert, key := testkit.CertificateAt(w.t, w.t.TempDir(), net.ParseIP(w.host), "*.home.example", "dns.home.example")
	var corefile strings.Builder
	for _, scheme := range []string{"https", "https3", "tls", "quic"} {
		corefile.WriteString(w.over(scheme, testkit.FreeAddress(w.t, w.host), "tls "+cert+" "+key, properties...))
	}
	w.elsewhere = testkit.FreeAddress(w.t, w.host)
	corefile.WriteString(w.over("dns", w.elsewhere, "", properties...))
	w.begin(corefile.String()) // QUIC is not asked by serving
	testkit.Until(w.t, "the first answer", func() bool {
		_, err := dns.Exchange(new(dns.Msg).SetQuestion(designation, dns.TypeA), w.elsewhere)
		return err == nil
	})
	w.updated(1)
	return cert
}

// quicOnly is a Corefile that answers over QUIC at an address.
func (w *world) quicOnly(address string, properties ...string) string {
	cert, key := testkit.Certificate(w.t, w.t.TempDir())
	return w.over("quic", address, "tls "+cert+" "+key, properties...)
}

// over is a Corefile that answers by a scheme at the port of an address.
func (w *world) over(scheme, address, tls string, properties ...string) string {
	_, port, _ := net.SplitHostPort(address)
	return strings.Replace(w.corefile(properties...), ".:0 {", scheme+"://.:"+port+" {\n\t"+tls, 1)
}

// overQUIC starts a CoreDNS that answers over QUIC, and returns how to ask it for addresses over one connection.
func (w *world) overQUIC(properties ...string) (ask func(name string) (*dns.Msg, error)) {
	w.t.Helper()
	w.elsewhere = testkit.FreeAddress(w.t, w.host)
	w.begin(w.quicOnly(w.elsewhere, properties...))
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	w.t.Cleanup(cancel)
	quic := transportNamed("QUIC")
	exchange, end, err := quic.dial(ctx, w.elsewhere, &tls.Config{InsecureSkipVerify: true})
	testkit.Must(w.t, err)
	w.t.Cleanup(end)
	return func(name string) (*dns.Msg, error) { return quic.over(exchange, query(name, dns.TypeA)) }
}

// designated asks as a client does that looks for encrypted DNS (RFC 9462 section 4).
func (w *world) designated() (all []*dns.SVCB) {
	w.t.Helper()
	for _, rr := range w.ask(designation, dns.TypeSVCB).Answer {
		if svcb, ok := rr.(*dns.SVCB); ok {
			all = append(all, svcb)
		}
	}
	slices.SortFunc(all, func(a, b *dns.SVCB) int { return int(a.Priority) - int(b.Priority) })
	return all
}

// parameters are what a client needs from a record.
type parameters struct{ alpn, port, hint, path string }

func parametersOf(rr *dns.SVCB) parameters {
	of := make(map[string]string)
	for _, value := range rr.Value {
		of[value.Key().String()] = value.String()
	}
	return parameters{of["alpn"], of["port"], of["ipv4hint"], of["dohpath"]}
}

// upgraded asks a designated resolver, after its certificate has proved that it may take the place of the one at
// asked: it has the name of the target, and that address (RFC 9462 section 4.2).
func upgraded(t *testing.T, rr *dns.SVCB, asked string, roots *x509.CertPool, name string) *dns.Msg {
	t.Helper()
	p := parametersOf(rr)
	address := net.JoinHostPort(p.hint, p.port)
	trust := &tls.Config{RootCAs: roots, ServerName: strings.TrimSuffix(rr.Target, "."), VerifyConnection: func(s tls.ConnectionState) error {
		return s.PeerCertificates[0].VerifyHostname(asked)
	}}
	if p.alpn == "h2" || p.alpn == "h3" {
		testkit.Equal(t, "the path, as CoreDNS has it", p.path, "/dns-query{?dns}")
	}
	ask := askHTTP3
	if p.alpn != "h3" {
		ask = transportNamed(map[string]string{"dot": "TLS", "doq": "QUIC", "h2": "HTTPS"}[p.alpn]).ask
	}
	answer, err := ask(t.Context(), address, trust, query(name, dns.TypeA))
	if err != nil {
		t.Fatalf("%v: %v", rr, err)
	}
	return answer
}

func TestAnEncryptedServerDesignatesItselfToClients(t *testing.T) {
	w := newWorld(t)
	w.upstream = startUpstreamWith(t, func(q dns.Question) []dns.RR {
		if q.Name == "large.example.org." {
			return slices.Repeat(leadAway(q), 100)
		}
		return leadAway(q)
	})
	lines := testkit.Capture(t)
	authority := w.encrypting("block " + writeFile(t, t.TempDir(), "own.txt", "blocked.example\n"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(testkit.Read(t, authority)))
	all := w.designated()
	order := ""
	for _, rr := range all {
		p := parametersOf(rr)
		order += p.alpn + " "
		if rr.Target != "dns.home.example." || p.hint != w.host {
			t.Errorf("Expected to be led to dns.home.example at %s, got %v", w.host, rr)
			continue
		}
		testkit.Equal(t, p.alpn+" ends at this server, which blocks", isBlocked(upgraded(t, rr, w.host, roots, "blocked.example.")), true)
		testkit.Equal(t, p.alpn+": a clean name", brief(upgraded(t, rr, w.host, roots, "clean.example.org.")), "NOERROR 1")
	}
	testkit.Equal(t, "transports: first those that cut no answers, the least costly first", order, "dot h2 doq h3 ")
	for _, rr := range all[:2] {
		m := upgraded(t, rr, w.host, roots, "large.example.org.")
		testkit.Equal(t, fmt.Sprint(rr, ": a large answer, truncated"), [2]any{brief(m), m.Truncated}, [2]any{"NOERROR 100", false})
	}
	lines.Only(t, "resolver.arpa leads to this server: dot at dns.home.example, h2 at dns.home.example, doq at dns.home.example, h3 at dns.home.example")
	m := w.ask(designation, dns.TypeA)
	testkit.Equal(t, "other types", fmt.Sprint(brief(m), ", authority ", len(m.Ns)), "NOERROR 0, authority 1")
	t.Run("kdig", func(t *testing.T) {
		program := testkit.Program(t, "kdig")
		for _, rr := range all[:3] { // it has no HTTP/3
			p := parametersOf(rr)
			over := map[string]string{"dot": "+tls", "doq": "+quic", "h2": "+https"}[p.alpn]
			status, out := testkit.Run(t, program, "@"+p.hint, "-p", p.port, "+tls-ca="+authority, "+tls-hostname="+strings.TrimSuffix(rr.Target, "."), over, "blocked.example", "A")
			testkit.Equal(t, over, status, 0)
			testkit.WantParts(t, out, "NXDOMAIN", "blocklist own.txt")
		}
	})
}

func TestAnEncryptedServerWithoutANameIsTold(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	cert, key := testkit.Certificate(t, t.TempDir())
	w.serve(w.corefile() + w.over("tls", testkit.FreeAddr(t), "tls "+cert+" "+key))
	testkit.WantParts(t, lines.Only(t, "its certificate has no DNS name"), "[WARNING]")
	w.wantKept(designation, true)
}

// Only the server block of a view has its rules. An encrypted one for everybody has others.
func TestClientsOfAViewAreNotLedPastItsRules(t *testing.T) {
	w := newWorld(t)
	w.upstream = leadingUpstream(t)
	cert, key := testkit.CertificateAt(t, t.TempDir(), net.ParseIP(w.host), "dns.home.example")
	children := w.corefile(blockList(t, "blocked.example"))
	w.serve(strings.Replace(children, "errors", "errors\n\tview children {\n\t\texpr true\n\t}", 1) + w.over("tls", testkit.FreeAddr(t), "tls "+cert+" "+key))
	w.wantBlocked("blocked.example.", dns.TypeA, byOwn)
	w.wantKept(designation, true)
}

// The tests of the plugin local run with deploy/upstream/local.patch, as a package of this module whose files only this build sees.
func TestThePatchForLocalAnswersResolverArpa(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	git := testkit.Program(t, "git")
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns").Output()
	testkit.Must(t, err)
	patch, err := filepath.Abs("../deploy/upstream/local.patch")
	testkit.Must(t, err)
	const plugin = "plugin/local"
	source, copied := strings.TrimSpace(string(out)), t.TempDir()
	testkit.Must(t, os.CopyFS(filepath.Join(copied, plugin), os.DirFS(filepath.Join(source, plugin))))
	files, err := filepath.Glob(filepath.Join(copied, plugin, "*"))
	testkit.Must(t, err)
	replace := make(map[string]string)
	for _, file := range files {
		replace[filepath.Join(filepath.Dir(patch), "local", filepath.Base(file))] = file
	}
	inShell(t, "env", "GIT_CEILING_DIRECTORIES="+filepath.Dir(copied), git, "-C", copied, "apply", patch)
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	testkit.Must(t, err)
	tests := filepath.Join(copied, "local.test")
	inShell(t, "go", "test", "-c", "-vet=off", "-o", tests, "-overlay", testkit.Write(t, copied, "overlay.json", string(overlay)), module+"/deploy/upstream/local")
	status, said := testkit.Run(t, tests, "-test.v")
	testkit.Equal(t, "status", status, 0)
	testkit.WantParts(t, said, "--- PASS: TestLocal ")
}
