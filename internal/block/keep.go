package block

import (
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Kept returns what is answered here instead of by the next plugin, so that clients keep asking this
// server; nil: nothing. qname has its final dot, and x is its sign.
//
// The operator's words win: names in no zone of the block, in except or in allow are forwarded. A
// pause and monitor let the canaries pass, as they do with all that is blocked. They do not change
// that resolver.arpa is served here: that blocks no name, and clients that were led away would not
// come back when the pause ends.
func (b *Block) Kept(x *Sign, qname string) *answer.Kept {
	if x == nil || x.kept == nil {
		return nil
	}
	k := x.kept
	if b.Config.Keep == config.KeepNothing || k.Canary && b.Config.Keep != config.KeepCanaries || !b.InScope(qname) {
		return nil
	}
	if _, paused := b.PausedUntil(); k.Canary && (paused || b.Config.Monitor) {
		return nil
	}
	var d lookup.Decision
	if b.checkOwn(lookup.FromQname(qname), &d) && d.By == lookup.ByAllow {
		return nil
	}
	return k
}

// instead are the encrypted resolvers of this server that take the place of the block.
type instead []answer.Designated

// Designate tells the block to which encrypted resolvers of this server it leads clients.
func (b *Block) Designate(all []answer.Designated) { b.instead.Store((*instead)(&all)) }

// Designated returns them, in the order in which clients try them.
func (b *Block) Designated() []answer.Designated {
	if all := b.instead.Load(); all != nil {
		return *all
	}
	return nil
}

// DesignatedName is the name by which clients look for encrypted resolvers (RFC 9462 section 4).
const DesignatedName = "_dns." + answer.ResolverZone

// Canaries returns the names that do not exist with keep_clients, without their final dots.
func Canaries() (names []string) {
	for _, k := range answer.KeptNames {
		if k.Canary {
			names = append(names, strings.TrimSuffix(k.Name, "."))
		}
	}
	return names
}

// Keeps says which names are kept, for the log.
func (b *Block) Keeps() string {
	names, zone := strings.Join(Canaries(), ", "), "resolver.arpa is not forwarded"
	var all []string
	for _, d := range b.Designated() {
		all = append(all, d.String())
	}
	if len(all) > 0 {
		zone = "resolver.arpa leads to this server: " + strings.Join(all, ", ")
	}
	switch b.Config.Keep {
	case config.KeepNothing:
		return "keep_clients off: resolver.arpa is forwarded, and an upstream may lead clients to ask it instead of this server"
	case config.KeepCanaries:
		if b.Config.Monitor {
			return "Clients are kept here in part: " + zone + "; but monitor lets pass " + names
		}
		return "Clients are kept here: " + zone + "; and there are no " + names
	}
	return "Clients are kept here in part: " + zone + ". keep_clients answers these here, too: " + names
}
