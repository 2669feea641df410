package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/view"
	_ "github.com/coredns/coredns/plugin/whoami"

	"github.com/miekg/dns"

	_ "github.com/coredns-safebrowsing/safebrowsing"
)

// In this test the type of a query decides the view of its client. CoreDNS and check must
// use the same block.
func TestCheckChoosesTheBlockThatCoreDNSDoes(t *testing.T) {
	w := newWorld(t)
	dnsserver.Directives = []string{"bind", "safebrowsing", "whoami", "view"}
	block := func(zone, view, names string) string {
		b := zone + ":0 {\n bind 127.0.0.1\n"
		if view != "" {
			b += " view " + view + " {\n  expr type() == '" + map[string]string{"kids": "AAAA", "staff": "HTTPS"}[view] + "'\n }\n"
		}
		if names != "" {
			b += " safebrowsing {\n  block OWN(" + names + ")\n }\n"
		}
		return b + " whoami\n}\n"
	}
	corefile := w.corefile(t, block(".", "kids", "toys.example all.example")+
		block(".", "staff", "work.example all.example")+
		block(".", "", "all.example rest.example")+
		block("only.example", "kids", "a.only.example b.only.example")+
		block("bare.example", "staff", "")+
		block("off.example", "", "")+
		block("off.example", "kids", "a.off.example")+
		block("late.example", "", "a.late.example")+
		block("late.example", "kids", "b.late.example"))
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(read(t, corefile)), ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(errors.Join(instance.ShutdownCallbacks()...), instance.Stop()); err != nil {
			t.Error(err)
		}
	}()
	server := instance.Servers()[0].LocalAddr().String()
	unsafe := 0
	for view, qtype := range map[string]uint16{"": dns.TypeA, "kids": dns.TypeAAAA, "staff": dns.TypeHTTPS} {
		for name := range strings.FieldsSeq("toys.example work.example all.example rest.example a.only.example b.only.example all.bare.example a.late.example b.late.example a.off.example") {
			m := new(dns.Msg).SetQuestion(name+".", qtype)
			r, _, err := (&dns.Client{Timeout: 10 * time.Second}).Exchange(m, server)
			if err != nil {
				t.Fatal(err)
			}
			want := "safe"
			if r.Rcode == dns.RcodeNameError {
				want = "unsafe"
				unsafe++
			}
			args := []string{"check", "-json", "-corefile", corefile, name}
			if view != "" {
				args = append(args, "-view", view)
			}
			_, out, _ := invoke(t, args...)
			if got := decode[checked](t, out)[0]; got.Verdict != want {
				t.Errorf("%s for view %q: %+v, but CoreDNS answers %s", name, view, got, dns.RcodeToString[r.Rcode])
			}
		}
	}
	if unsafe != 11 {
		t.Errorf("CoreDNS blocked %d names, want 11", unsafe)
	}
}
