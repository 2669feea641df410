package lookup

import (
	"context"
	"time"
)

// CheckURL decides on a URL with its path and query, as a program that is no name server can ("Local List Mode"). It
// waits for the server if a list holds the prefix of an expression, until ctx ends: then, and if no search may be sent
// now, the decision is Unsure and Err says why. A mode other than Local makes it ask about all expressions.
func (c *Checker) CheckURL(ctx context.Context, u URL) Decision {
	if !u.Host().Public() {
		return Decision{}
	}
	expressions := u.Expressions(c.rule)
	hashes, prefixes := make([]FullHash, len(expressions)), make([]Prefix, len(expressions))
	for i, e := range expressions {
		hashes[i] = HashExpression(e.Text)
		prefixes[i] = hashes[i].Prefix(minPrefix)
	}
	answers, err := c.Search(ctx, prefixes, false, nil, nil)
	for i, answer := range answers {
		threat, known := c.threatIn(serverAnswer{threats: answer.Threats}, hashes[i])
		if !known {
			continue
		}
		first, also := threat.Threats.split()
		by := ByServer
		if answer.From == FromCache {
			by = ByCache
		}
		list, _ := c.prefixOf(c.database.Lists(), hashes[i])
		return Decision{
			Verdict: Unsafe, By: by, Threat: first, Also: also, FrameOnly: threat.FrameOnly, List: list,
			Expression: expressions[i].Text, Expires: time.Now().Add(answer.TTL),
		}
	}
	if err != nil {
		return Decision{Verdict: Unsure, By: deciderOf(err), Err: err}
	}
	return Decision{By: ByList}
}
