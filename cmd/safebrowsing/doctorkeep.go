package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// keeps examines whether clients keep asking this server: whether they may come over to encrypted DNS
// here, what the server says about names by which they leave, and who else is announced to them.
func (e *examination) keeps(ctx context.Context) {
	blocks := readOf(e.blocks)
	asked := config.PlainAddresses(blocks, config.MachineAddresses())
	for _, d := range encryptedDiagnoses(config.EncryptedOf(blocks), asked, time.Now()) {
		e.tell(d)
	}
	if !e.answers {
		return
	}
	if len(asked) > 0 { // clients of a network
		e.tell(announcedDiagnosis(e.resolverFiles(), config.MachineAddresses()))
	}
	var targets []string
	for _, d := range config.Designated(config.EncryptedOf(blocks)) {
		targets = append(targets, dns.Fqdn(d.Name))
	}
	for _, at := range plainListeners(blocks, config.MachineAddresses()) {
		e.tell(leaksDiagnosis(ctx, at, targets, e.listedAt(at)))
	}
}

// listedAt returns a name that is blocked at an address; "": none is known, as where a view decides which server block
// answers.
func (e *examination) listedAt(at netip.AddrPort) string {
	all := config.Listener{Zone: ".", Transport: transport.DNS, Port: fmt.Sprint(at.Port())}
	var answering []serverBlock
	for _, b := range e.blocks {
		if slices.Contains(b.Listeners, all) && b.At(at.Addr(), at.Port()) {
			answering = append(answering, b)
		}
	}
	if len(answering) != 1 || answering[0].Block == nil {
		return ""
	}
	return listedName(answering[0].Block)
}

// readOf returns server blocks as CoreDNS reads them.
func readOf(all []serverBlock) (blocks []caddyfile.ServerBlock) {
	for _, b := range all {
		blocks = append(blocks, b.read)
	}
	return blocks
}

// encryptedDiagnoses says of each server block with encrypted DNS whether clients that ask at an address
// without encryption come over.
func encryptedDiagnoses(all []config.Encrypted, asked []netip.Addr, now time.Time) (told []diagnosis) {
	for _, e := range all {
		lacks := e.Lacks(asked)
		switch {
		case e.Trouble() != "":
			told = append(told, diagnosis{"encrypted", isWarning, text(e.Trouble() + ": clients that look for encrypted DNS do not find it"), "name with tls a certificate for a DNS name"})
		case e.Certificate != nil && now.After(e.Certificate.NotAfter):
			told = append(told, diagnosis{"encrypted", isWarning, text(fmt.Sprintf("%s: its certificate has expired, at %s", e.Key, say.Time(e.Certificate.NotAfter))), "renew it, then reload CoreDNS"})
		case len(lacks) > 0:
			told = append(told, diagnosis{"encrypted", isWarning, text(fmt.Sprintf("%s: its certificate for %s does not have %s, where clients ask: those that verify do not come over (RFC 9462)", e.Key, e.Name, joinAddresses(lacks))),
				text("use a certificate for the address, too, or enter " + e.Name + " on the devices")})
		default:
			told = append(told, diagnosis{"encrypted", isOK, text(fmt.Sprintf("%s: clients that look for encrypted DNS are led to %s", e.Key, e.Name)), ""})
		}
	}
	return told
}

func joinAddresses(all []netip.Addr) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// plainListeners returns where server blocks with the plugin answer plain DNS for all names, at
// each address of this machine: clients on other interfaces may be answered by another server.
func plainListeners(blocks []caddyfile.ServerBlock, machine []netip.Addr) (all []netip.AddrPort) {
	for _, b := range blocks {
		listening := config.ListeningOf(b)
		for _, l := range listening.Listeners {
			if len(b.Tokens[say.Plugin]) == 0 || l.Zone != "." || l.Transport != transport.DNS {
				continue
			}
			for _, a := range machine {
				at, err := netip.ParseAddrPort(net.JoinHostPort(a.Unmap().WithZone("").String(), l.Port))
				if err == nil && at.Port() > 0 && !a.IsLinkLocalUnicast() && listening.At(at.Addr(), at.Port()) && !slices.Contains(all, at) {
					all = append(all, at)
				}
			}
			for _, word := range listening.Bind { // on loopback, an address of the machine may be any of 127.0.0.0/8
				if at, err := netip.ParseAddrPort(net.JoinHostPort(word, l.Port)); err == nil && at.Port() > 0 && at.Addr().IsLoopback() && !slices.Contains(all, at) {
					all = append(all, at)
				}
			}
		}
	}
	return all
}

// listedName returns a name, as a client asks for it, that a server block blocks by a file of block; "": none
// is known.
func listedName(b *block.Block) string {
	for _, own := range b.Config.Own {
		for line := range strings.Lines(firstLines(own.Path)) {
			line, _, _ = strings.Cut(line, "#")
			line = strings.Trim(line, " \t\r\n.")
			h, ok := lookup.ParseHost(line)
			if !ok || own.Allow || strings.ContainsAny(line, " |/:*^=!;@\"") {
				continue
			}
			if a := b.Why(h); a.Blocked() {
				return h.String()
			}
		}
	}
	return ""
}

// firstLines returns the whole lines at the beginning of a file, or "".
func firstLines(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 1 << 12
	beginning, err := io.ReadAll(io.LimitReader(f, most))
	switch {
	case err != nil:
		return ""
	case len(beginning) == most:
		beginning = beginning[:bytes.LastIndexByte(beginning, '\n')+1]
	}
	return string(beginning)
}

// onceTimeout is how long a server may take to answer one question.
const onceTimeout = 5 * time.Second

// askOnce asks a server for a name over UDP, as a client does.
func askOnce(ctx context.Context, at netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype).SetEdns0(1232, false)
	answer, _, err := (&dns.Client{Timeout: onceTimeout}).ExchangeContext(ctx, m, at.String())
	return answer, err
}

// leaksDiagnosis asks a server as a client does, and says which answers would lead that away. targets
// are the encrypted resolvers of this server; listed is a name that it blocks.
func leaksDiagnosis(ctx context.Context, at netip.AddrPort, targets []string, listed string) diagnosis {
	const check = "leaks"
	designated, err := askOnce(ctx, at, block.DesignatedName, dns.TypeSVCB)
	if err != nil {
		return diagnosis{check, isWarning, text(fmt.Sprintf("there is no answer at %s: %v", at, err)), "see the log of CoreDNS, and bind in the Corefile"}
	}
	if designated.Rcode == dns.RcodeRefused {
		return diagnosis{check, isSkipped, text(fmt.Sprintf("this machine may not ask at %s", at)), ""}
	}
	for _, rr := range designated.Answer {
		if svcb, ok := rr.(*dns.SVCB); ok && !slices.Contains(targets, svcb.Target) {
			return diagnosis{check, isWarning, text(fmt.Sprintf("the answer about _dns.resolver.arpa at %s leads clients to %s, away from this server", at, strings.TrimSuffix(svcb.Target, "."))),
				"remove keep_clients off and allow or except for resolver.arpa, or update the server that answers there; then reload CoreDNS"}
		}
	}
	var leaks []string
	for _, name := range block.Canaries() {
		if answer, err := askOnce(ctx, at, name, dns.TypeA); err == nil && answer.Rcode == dns.RcodeSuccess && len(answer.Answer) > 0 {
			leaks = append(leaks, name)
		}
	}
	if len(leaks) > 0 {
		return diagnosis{check, isWarning, text(fmt.Sprintf("at %s there is an address for %s: such clients do not ask this server any more", at, strings.Join(leaks, ", "))),
			text("write keep_clients into the stanza of " + say.Plugin + ", unless you want that. If it is there, a pause or monitor lets them pass")}
	}
	if listed != "" {
		if answer, err := askOnce(ctx, at, listed, dns.TypeA); err == nil && !isBlocked(answer) {
			return diagnosis{check, isWarning, text(fmt.Sprintf("at %s %s is not blocked, although a list of the Corefile has it", at, listed)),
				"see \"safebrowsing why " + text(listed) + "\": there may be a pause, or another server answers at that address"}
		}
	}
	return diagnosis{check, isOK, text(fmt.Sprintf("at %s no answer leads clients away", at)), ""}
}

// resolverFiles are where network managers write the resolvers that the network announces.
func (e *examination) resolverFiles() []string {
	all := []string{e.resolvConf, "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"}
	links, _ := filepath.Glob("/run/systemd/netif/links/*") // no error: the pattern is right
	return append(all, links...)
}

// announcedDiagnosis says whether this machine has heard of an IPv6 resolver beside this server. It reads
// what network managers have written: routers announce resolvers by RDNSS (RFC 8106) and DHCPv6, and
// each client of the network hears the same.
func announcedDiagnosis(files []string, machine []netip.Addr) diagnosis {
	for _, file := range files {
		written, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(written)) {
			for _, a := range announcedBy(line) {
				if !a.IsLoopback() && !slices.Contains(machine, a.WithZone("")) {
					return diagnosis{"announced", isWarning, text(fmt.Sprintf("%s names the IPv6 resolver %s beside this server: clients that the router tells of it ask it, too", file, a)),
						"in the router, announce no DNS server over IPv6 (RDNSS, DHCPv6), or this one; if the line is your own, leave it"}
				}
			}
		}
	}
	return diagnosis{"announced", isOK, "no IPv6 resolver beside this server is seen in what this machine has taken from the network", ""}
}

// announcedBy returns the IPv6 resolvers in a line of resolv.conf ("nameserver") or of a link's state of
// systemd-networkd ("DNS=").
func announcedBy(line string) (all []netip.Addr) {
	fields := strings.Fields(line)
	switch {
	case len(fields) > 1 && fields[0] == "nameserver":
		fields = fields[1:2]
	case strings.HasPrefix(line, "DNS="):
		fields = strings.Fields(strings.TrimPrefix(line, "DNS="))
	default:
		return nil
	}
	for _, field := range fields {
		if a, err := netip.ParseAddr(field); err == nil && a.Is6() && !a.Is4In6() {
			all = append(all, a)
		}
	}
	return all
}
