package block

import (
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Kept returns what is answered here in place of the next plugin so that clients go on asking this
// server; nil: nothing. qname has its final dot. It neither takes a lock nor allocates for other
// names.
//
// The operator's words win: names in no zone of the block, in except or in allow are forwarded. A
// pause and monitor let the canaries pass, as they do with all that is blocked. They do not change
// that resolver.arpa is served here: that blocks no name, and clients that were led away would not
// come back when the pause ends.
func (b *Block) Kept(qname string) *answer.Kept {
	k := answer.KeptFor(qname)
	if k == nil || b.Config.Keep == config.KeepNothing || k.Canary && b.Config.Keep != config.KeepCanaries || !b.InScope(qname) {
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

// Keeps says which names are kept, for the log.
func (b *Block) Keeps() string {
	var canaries []string
	for _, k := range answer.KeptNames {
		if k.Canary {
			canaries = append(canaries, strings.TrimSuffix(k.Name, "."))
		}
	}
	names := strings.Join(canaries, ", ")
	switch b.Config.Keep {
	case config.KeepNothing:
		return "keep_clients off: resolver.arpa is forwarded, and an upstream may lead clients to ask it in place of this server"
	case config.KeepCanaries:
		text := "Clients are kept here: resolver.arpa is not forwarded, and there are no " + names
		if b.Config.Monitor {
			text = "Clients are kept here in part: resolver.arpa is not forwarded, but monitor lets pass " + names
		}
		return text
	}
	return "Clients are kept here in part: resolver.arpa is not forwarded. keep_clients does the same for " + names
}
