package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// running asks the server itself, and reports whether it answers: then it tells of lists, searches and
// pauses, and the files in its folder are not looked at.
func (e *examination) running(ctx context.Context) bool {
	r, err := control.Report(ctx, doorsFor(e.path, e.given, e.blocks))
	if err != nil {
		d := diagnosis{"running", isWarning, text(err.Error()), "run this command as the user of CoreDNS, or with sudo"}
		if _, down := errors.AsType[*control.NotRunningError](err); down {
			d.Status, d.Advice = isProblem, "start CoreDNS; before its first start use safebrowsing validate"
		}
		e.tell(d)
		return false
	}
	d := diagnosis{"running", isOK, text(fmt.Sprintf("%s, since %s", r.Headline, say.Time(r.Since))), ""}
	switch {
	case r.OwnListsOnly(): // it may be meant
		d.Status, d.Advice = isWarning, "see the line about the key"
	case !r.Protects():
		d.Status, d.Advice = isProblem, "see the next lines, or run safebrowsing status"
	}
	e.tell(d)
	for _, c := range r.Causes {
		advice := cmp.Or(c.Cure, "the log of CoreDNS says more")
		c.Cure = ""
		e.tell(diagnosis{"running", isWarning, text(c.String()), text(advice)})
	}
	e.tell(diagnosis{"lists", isOK, text(r.ListsInWords()), ""})
	e.tell(diagnosis{"today", isOK, text(r.TodayInWords()), ""})
	return true
}

// portsOf examines whether somebody else has a port of the Corefile, or this user may not have it.
func (e *examination) portsOf() {
	var tried []string
	for _, b := range e.blocks {
		for _, l := range b.Listeners {
			for _, address := range addressesOf(b.Bind, l.Port) {
				if l.Transport != transport.DNS || slices.Contains(tried, address) {
					continue
				}
				tried = append(tried, address)
				if d, bad := portDiagnosis(address, take(address)); bad {
					e.tell(d)
				}
			}
		}
	}
}

// addressesOf returns where a server block listens, as far as its bind has addresses.
func addressesOf(bind []string, port string) (all []string) {
	if len(bind) == 0 {
		return []string{net.JoinHostPort("", port)}
	}
	for _, word := range bind {
		if _, err := netip.ParseAddr(word); err == nil {
			all = append(all, net.JoinHostPort(word, port))
		}
	}
	return all
}

// take listens at an address for a moment.
func take(address string) error {
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	defer udp.Close()
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return tcp.Close()
}

// portDiagnosis says why a server could not listen at an address.
func portDiagnosis(address string, err error) (d diagnosis, bad bool) {
	_, port, _ := net.SplitHostPort(address)
	switch {
	case err == nil || port == "0":
		return d, false
	case errors.Is(err, syscall.EADDRINUSE):
		return diagnosis{"port", isWarning, text(address + " is in use: by CoreDNS if it runs, else by another program"),
			text(fmt.Sprintf("\"ss -lntup sport = :%s\" shows by which: stop it if it is not CoreDNS, or choose another port or address with bind", port))}, true
	case errors.Is(err, fs.ErrPermission):
		return diagnosis{"port", isWarning, text("this user may not listen at " + address), "run the command as CoreDNS does; a service needs CAP_NET_BIND_SERVICE for port 53"}, true
	}
	return diagnosis{"port", isWarning, text(fmt.Sprintf("nobody can listen at %s: %v", address, err)), "choose another address with bind"}, true
}

// isOpen reports whether a server block asks others about every name and answers on all
// addresses, or on a public one, without *acl*. What an interface is open to is not known.
func (b *serverBlock) isOpen() bool {
	_, forwards := b.read.Tokens["forward"]
	_, restricted := b.read.Tokens["acl"]
	_, selected := b.read.Tokens["view"] // by an expression that may look at clients
	everything := slices.ContainsFunc(b.Listeners, func(l config.Listener) bool { return l.Zone == "." })
	public := len(b.Bind) == 0 || slices.ContainsFunc(b.Bind, func(word string) bool {
		a, err := netip.ParseAddr(word)
		return err == nil && (a.IsUnspecified() || a.IsGlobalUnicast() && !a.IsPrivate())
	})
	return forwards && !restricted && !selected && everything && public
}

// open warns of server blocks that answer everybody, once.
func (e *examination) open() {
	for _, b := range ours(e.blocks) {
		if b.isOpen() {
			e.tell(diagnosis{"clients", isWarning, text(b.stanza() + ": this server block answers everybody who reaches it: an open resolver is used in attacks on others"),
				"say with acl who may ask, or with bind at which address, unless a firewall keeps strangers out"})
			return
		}
	}
}

// upstreams says whom the server blocks ask that have the plugin.
func (e *examination) upstreams() {
	var all []string
	for _, b := range ours(e.blocks) {
		for _, args := range config.Forwards(b.read) {
			if of := strings.Join(args[1:], ", ") + " for " + args[0]; !slices.Contains(all, of) {
				all = append(all, of)
			}
		}
	}
	if len(all) > 0 {
		e.tell(diagnosis{"upstream", isOK, text("what passes is asked of " + strings.Join(all, "; ")), ""})
	}
}
