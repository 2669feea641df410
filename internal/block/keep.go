package block

import (
	_ "embed"
	"slices"
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
	if b.Config.Keep == config.KeepNothing || k.Canary && b.Config.Keep != config.KeepCanaries {
		return nil
	}
	if _, paused := b.PausedUntil(); k.Canary && (paused || b.Config.Monitor) {
		return nil
	}
	if b.leaves(qname) {
		return nil
	}
	return k
}

// Designate tells the block, before Start, to which encrypted resolvers of this server it leads clients.
func (b *Block) Designate(all []answer.Designated) { b.instead = all }

// Designated returns them, in the order in which clients try them.
func (b *Block) Designated() []answer.Designated { return b.instead }

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

// leaves reports whether a name is forwarded whatever keep_clients says: it is in no zone of the block, in except or in allow. An
// exception in a list of block does not count.
func (b *Block) leaves(qname string) bool {
	if !b.InScope(qname) {
		return true
	}
	var d lookup.Decision
	h := lookup.FromQname(qname)
	return b.checkOwn(h, &d) && d.By == lookup.ByAllow && b.own.Load().allowed(h)
}

// Keeps says which names are kept, for the log, once the block has started; "" if it is for none of them.
func (b *Block) Keeps() string {
	kept := slices.DeleteFunc(Canaries(), func(name string) bool { return b.leaves(name + ".") })
	names, zone := strings.Join(kept, ", "), "resolver.arpa is not forwarded"
	var all []string
	for _, d := range b.instead {
		all = append(all, d.String())
	}
	if len(all) > 0 {
		zone = "resolver.arpa leads to this server: " + strings.Join(all, ", ")
	}
	led := b.leaves(answer.ResolverZone)
	if led {
		zone = "resolver.arpa is forwarded, by the zones, except or allow of the stanza"
	}
	switch {
	case b.Config.Keep == config.KeepNothing:
		return "keep_clients off: resolver.arpa is forwarded, and an upstream may lead clients to ask it instead of this server"
	case names == "" && led:
		return ""
	case names == "":
		return "Clients are kept here in part: " + zone
	case b.Config.Keep == config.KeepCanaries:
		if b.Config.Monitor {
			return "Clients are kept here in part: " + zone + "; but monitor lets pass " + names
		}
		return "Clients are kept here: " + zone + "; and there are no " + names
	}
	return "Clients are kept here in part: " + zone + ". keep_clients answers these here, too: " + names
}

// resolversList has the names of public encrypted resolvers, each with its source. It has the form of
// an own list.
//
//go:embed resolvers.txt
var resolversList string

// tellsNothing are names that a device asks this server for whether it uses another resolver or not, besides
// answer.KeptNames. Each stands for itself only.
var tellsNothing = []string{
	// Apple devices look it up for iCloud Private Relay, whatever their resolver is.
	"doh.dns.apple.com",
	// Android looks for a captive portal, and for the time, past its private DNS: its NetworkStack,
	// res/values/config.xml, and SntpClient.java, which use getPrivateDnsBypassingCopy.
	"connectivitycheck.gstatic.com", "www.google.com", "play.googleapis.com", "time.android.com",
	// Apple, "Use Apple products on enterprise networks"; Microsoft, "NCSI overview"; Firefox, "Captive
	// portal detection"; Ubuntu and GNOME, the connectivity checks of their NetworkManager.
	"captive.apple.com", "www.msftconnecttest.com", "ipv6.msftconnecttest.com", "dns.msftncsi.com", "detectportal.firefox.com",
	"connectivity-check.ubuntu.com", "nmcheck.gnome.org",
}

// telling are the names whose queries are signs.
var telling = newSigns(resolversList, tellsNothing)

// signs are names by what a query for them tells: a hash table by their last bytes. They are immutable.
type signs struct {
	all   []Sign
	first [1 << endBits]uint8 // of the names with a hash, by their place in all, from 1 on; 0: none
}

// Sign is what a query for a name tells about its client, where that is not the same as for ordinary names.
type Sign struct {
	name     string
	resolver bool         // the client looks for a public encrypted resolver; else the name tells nothing
	kept     *answer.Kept // what is answered here; nil: nothing
	below    bool         // names below it, too
	next     uint8        // with the same hash, as in first
}

// SignOf returns the sign that a query for a name is; nil: none, as nearly all. It neither takes a lock nor
// allocates. Case and the final dot do not count.
func SignOf(qname string) *Sign {
	if n := len(qname); n > endBytes && qname[n-1] == '.' && telling.first[endOf(qname[:n-1])] == 0 { // nearly all
		return nil
	}
	return telling.find(qname)
}

const (
	endBytes = 8  // that are hashed
	shortest = 7  // bytes of a name: with a dot in front that makes endBytes
	endBits  = 12 // 4,096 for some hundred names
)

func newSigns(resolvers string, nothing []string) *signs {
	t := new(signs)
	for line := range strings.Lines(resolvers) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "||"); ok {
			t.add(Sign{name: strings.TrimSuffix(name, "^"), resolver: true, below: true})
		}
	}
	for _, name := range nothing {
		t.add(Sign{name: name})
	}
	for i := range answer.KeptNames {
		k := &answer.KeptNames[i]
		t.add(Sign{name: strings.TrimSuffix(k.Name, "."), below: k.Below, kept: k})
	}
	return t
}

// add adds a name, of at most 255.
func (t *signs) add(x Sign) {
	at := endOf("." + x.name)
	x.next = t.first[at]
	t.all = append(t.all, x)
	t.first[at] = uint8(len(t.all))
}

// endOf returns the hash of the last bytes of a name without its final dot, which has endBytes at least. Case
// does not count.
func endOf(name string) uint64 {
	const lower = 0x2020202020202020 // changes letters only, as far as names of hosts go
	s := name[len(name)-endBytes:]
	end := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	return (end | lower) * 0x9e3779b97f4a7c15 >> (64 - endBits) // Fibonacci hashing (Knuth, volume 3, section 6.4)
}

// find returns the name that the one of a query is, or is below; nil: none. It does not allocate.
func (t *signs) find(qname string) *Sign {
	name := strings.TrimSuffix(qname, ".")
	var at uint64
	switch {
	case len(name) >= endBytes:
		at = endOf(name)
	case len(name) == shortest:
		at = endOf("." + name)
	default:
		return nil
	}
	for i := t.first[at]; i != 0; i = t.all[i-1].next {
		if x := &t.all[i-1]; x.covers(name) {
			return x
		}
	}
	return nil
}

// covers reports whether a name is this one or, if that counts, below it. Case does not count. A dot behind a
// backslash is part of a label, and not behind two (RFC 1035, section 5.1).
func (x *Sign) covers(name string) bool {
	front := len(name) - len(x.name)
	if front < 0 || !strings.EqualFold(name[front:], x.name) {
		return false
	}
	if front == 0 || !x.below || name[front-1] != '.' {
		return front == 0
	}
	labels := name[:front-1]
	return (len(labels)-len(strings.TrimRight(labels, `\`)))%2 == 0
}
