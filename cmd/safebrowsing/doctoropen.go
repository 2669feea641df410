package main

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

// isOpen reports whether a server block asks others about every name and answers on all
// addresses, or on a public one, without *acl*. What an interface is open to is not known.
func isOpen(b caddyfile.ServerBlock) bool {
	l := config.ListeningOf(b)
	_, forwards := b.Tokens["forward"]
	_, restricted := b.Tokens["acl"]
	_, selected := b.Tokens["view"] // by an expression that may look at clients
	everything := slices.ContainsFunc(l.Listeners, func(l config.Listener) bool { return l.Zone == "." })
	public := len(l.Bind) == 0 || slices.ContainsFunc(l.Bind, func(word string) bool {
		a, err := netip.ParseAddr(word)
		return err == nil && (a.IsUnspecified() || a.IsGlobalUnicast() && !a.IsPrivate())
	})
	return forwards && !restricted && !selected && everything && public
}

// open warns of server blocks that answer everybody, once.
func (e *examination) open() {
	for _, b := range ours(e.blocks) {
		if b.open {
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
		for _, args := range b.asks {
			if of := strings.Join(args[1:], ", ") + " for " + args[0]; !slices.Contains(all, of) {
				all = append(all, of)
			}
		}
	}
	if len(all) > 0 {
		e.tell(diagnosis{"upstream", isOK, text("what passes is asked of " + strings.Join(all, "; ")), ""})
	}
}
