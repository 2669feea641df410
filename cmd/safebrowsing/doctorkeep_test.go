package main

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy/caddyfile"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// answering starts a name server on loopback that knows every name and type, but for those that reply answers.
func answering(t *testing.T, reply func(m *dns.Msg)) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		m.RecursionAvailable = true // or Unbound would not ask it
		q := r.Question[0]
		header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 1}
		switch q.Qtype {
		case dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 1)}}
		case dns.TypeSVCB:
			m.Answer = []dns.RR{&dns.SVCB{Hdr: header, Priority: 1, Target: "dns.upstream.example."}}
		}
		reply(m)
		w.WriteMsg(m)
	})}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// without takes the answer for a name away; blocked says that it is blocked.
func without(m *dns.Msg, name string, blocked bool) {
	if m.Question[0].Name != name {
		return
	}
	m.Answer = nil
	if blocked {
		m.Rcode = dns.RcodeNameError
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked}}
	}
}

func TestDoctorSaysWhichNamesLeadClientsAway(t *testing.T) {
	const listed = "malware.example"
	for _, tc := range []struct {
		name, status string
		targets      []string
		reply        func(m *dns.Msg)
		parts        []string
	}{
		{"all is forwarded", isWarning, nil, func(*dns.Msg) {}, []string{"about _dns.resolver.arpa at 127.0.0.1:", "leads clients to dns.upstream.example, away", "→ remove keep_clients off"}},
		{"no keep_clients", isWarning, nil, func(m *dns.Msg) { without(m, "_dns.resolver.arpa.", false) },
			[]string{"there is an address for use-application-dns.net, mask.icloud.com, mask-h2.icloud.com, dns-tunnel-check.googlezip.net", "→ write keep_clients into"}},
		{"one canary is not known", isWarning, nil, func(m *dns.Msg) {
			for _, name := range []string{"_dns.resolver.arpa.", "use-application-dns.net.", "mask.icloud.com.", "mask-h2.icloud.com."} {
				without(m, name, name != "_dns.resolver.arpa.")
			}
		}, []string{"there is an address for dns-tunnel-check.googlezip.net: "}},
		{"another server", isWarning, nil, func(m *dns.Msg) {
			if m.Question[0].Name != listed+"." {
				m.Answer = nil
			}
		}, []string{"malware.example is not blocked, although", "→ see \"safebrowsing why malware.example\""}},
		{"all is kept", isOK, nil, func(m *dns.Msg) {
			m.Answer = nil
			without(m, listed+".", true)
		}, []string{"no answer leads clients away"}},
		{"this server is designated", isOK, []string{"dns.upstream.example."}, func(m *dns.Msg) {
			if m.Question[0].Qtype == dns.TypeA {
				m.Answer = nil
				without(m, listed+".", true)
			}
		}, []string{"no answer leads clients away"}},
		{"refused by acl", isSkipped, nil, func(m *dns.Msg) { m.Answer, m.Rcode = nil, dns.RcodeRefused }, []string{"this machine may not ask at"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantIs(t, leaksDiagnosis(t.Context(), answering(t, tc.reply), tc.targets, listed), tc.status, tc.parts...)
		})
	}
	at := netip.MustParseAddrPort(testkit.FreeAddr(t))
	wantIs(t, leaksDiagnosis(t.Context(), at, nil, listed), isWarning, "there is no answer at 127.0.0.1:")
}

func TestDoctorAsksAtEachAddressWhereClientsDo(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fe80::2")}
	for corefile, want := range map[string][]string{
		".:53 {\nsafebrowsing\n}":                                                  {"127.0.0.1:53", "192.168.1.2:53", "[fd00::2]:53"},
		".:1053 {\nbind 127.0.0.1 192.168.1.2\nsafebrowsing\n}":                    {"127.0.0.1:1053", "192.168.1.2:1053"},
		".:53 {\nbind 127.7.7.7\nsafebrowsing\n}":                                  {"127.7.7.7:53"},
		". {\nbind 192.168.1.2\nsafebrowsing\n}\n. {\nbind 192.168.1.2\nwhoami\n}": {"192.168.1.2:53"},
		"example.org tls://. {\nsafebrowsing\n}":                                   nil,
		".:0 {\nsafebrowsing\n}":                                                   nil,
	} {
		blocks, err := caddyfile.Parse("Corefile", strings.NewReader(corefile), nil)
		testkit.Must(t, err)
		var got []string
		for _, at := range plainListeners(blocks, machine) {
			got = append(got, at.String())
		}
		expect(t, corefile, got, want)
	}
}

func TestDoctorSeesAnIPv6ResolverBesideThisServer(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fe80::2")}
	for text, want := range map[string]string{
		"nameserver 192.168.1.1\nnameserver fe80::1%eth0\n":               "FILE names the IPv6 resolver fe80::1%eth0 ",
		"nameserver 2001:db8::1\n":                                        "FILE names the IPv6 resolver 2001:db8::1 ",
		"# state\nADMIN_STATE=configured\nDNS=192.168.1.1 2001:db8::53\n": "FILE names the IPv6 resolver 2001:db8::53 ",
		"nameserver ::1\nnameserver fd00::2\nnameserver fe80::2%eth0\n":   "",
		"nameserver 192.168.1.1\n# nameserver 2001:db8::1\nDNS=\n":        "",
		"nameserver ::ffff:192.168.1.1\n":                                 "",
	} {
		file := testkit.Write(t, t.TempDir(), "resolv.conf", text)
		d := announcedDiagnosis([]string{filepath.Join(t.TempDir(), "missing"), file}, machine)
		wantIs(t, d, map[bool]string{true: isOK, false: isWarning}[want == ""], strings.Replace(want, "FILE", file, 1))
	}
}

// Without a server, too: validate says so.
func TestDoctorTellsCertificatesThatClientsDoNotAccept(t *testing.T) {
	dir := t.TempDir()
	cert, key := testkit.CertificateAt(t, dir, net.IPv4(192, 168, 1, 2), "dns.home.example")
	nameless, _ := testkit.Certificate(t, t.TempDir())
	own := testkit.Write(t, dir, "own.txt", "blocked.example\n")
	for _, tc := range []struct {
		name, cert, asked, status string
		later                     time.Duration
		parts                     []string
	}{
		{"the name and the address", cert, "192.168.1.2", isOK, 0, []string{"tls://.:853: clients that look for encrypted DNS are led to dns.home.example"}},
		{"another address", cert, "192.168.1.3", isWarning, 0, []string{"does not have 192.168.1.3, where clients ask", "or enter dns.home.example on the devices"}},
		{"expired", cert, "192.168.1.2", isWarning, 2 * time.Hour, []string{"its certificate has expired", "→ renew it"}},
		{"no name", nameless, "192.168.1.2", isWarning, 0, []string{"has no DNS name"}},
	} {
		corefile := testkit.Write(t, dir, "Corefile", "tls://. {\nbind 127.0.0.1\ntls "+tc.cert+" "+key+"\nsafebrowsing {\nblock "+own+"\n}\n}\n")
		blocks, err := parseCorefile(corefile)
		testkit.Must(t, err)
		all := encryptedDiagnoses(config.EncryptedOf(readOf(blocks)), []netip.Addr{netip.MustParseAddr(tc.asked)}, time.Now().Add(tc.later))
		expect(t, tc.name, len(all), 1)
		wantIs(t, all[0], tc.status, tc.parts...)
		if tc.later == 0 {
			run(t, "validate", corefile).want(0, "encrypted tls://.:853: ")
		}
	}
}

// The name that is asked for is one that an own list blocks.
func TestDoctorAsksTheServerThatRunsAsAClient(t *testing.T) {
	_, db := serve(t)
	at := answering(t, func(m *dns.Msg) {
		if m.Question[0].Name != "zweiter.xn--bcher-kva.example." {
			m.Answer = nil
		}
	})
	block := testkit.Write(t, t.TempDir(), "block.txt", "first.example\nfirst.example # again\n")
	second := testkit.Write(t, t.TempDir(), "second.txt", "Zweiter.Bücher.example\n")
	allow := testkit.Write(t, t.TempDir(), "allow.txt", "first.example\n")
	corefile := testkit.Write(t, t.TempDir(), "Corefile", ".:"+strings.Split(at.String(), ":")[1]+" {\nbind 127.0.0.1\nsafebrowsing {\ndb "+db+"\nblock "+block+" "+second+"\nallow "+allow+"\n}\n}\n")
	run(t, "doctor", "-corefile", corefile).want(0, "warning  leaks     at "+at.String()+" zweiter.xn--bcher-kva.example is not blocked, although")
	run(t, "doctor", "-offline", "-corefile", corefile).not("leaks") // asks nobody
}

// Each server block has lists of its own. Where a view decides which one answers, nobody knows what this machine is told.
func TestDoctorAsksForANameWhereItIsBlocked(t *testing.T) {
	_, db := serve(t)
	blocks := answering(t, func(m *dns.Msg) { m.Answer = nil; without(m, "malware.example.", true) })
	passes, views := answering(t, func(m *dns.Msg) { m.Answer = nil }), answering(t, func(m *dns.Msg) { m.Answer = nil })
	block := func(at netip.AddrPort, also, list string) string {
		return fmt.Sprintf(".:%d {\nbind 127.0.0.1\n%ssafebrowsing {\ndb %s\nblock %s\n}\n}\n", at.Port(), also, db, testkit.Write(t, t.TempDir(), "block.txt", list))
	}
	corefile := testkit.Write(t, t.TempDir(), "Corefile", block(blocks, "", "malware.example\n")+block(passes, "", "||other.example^\n")+
		block(views, "view children {\nexpr false\n}\n", "malware.example\n")+block(views, "", "||other.example^\n"))
	out := run(t, "doctor", "-corefile", corefile).not("is not blocked").out
	expect(t, "all is well", strings.Count(out, "no answer leads clients away"), 3)
}
