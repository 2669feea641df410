package lookup

import (
	"errors"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// knowing are the searches for what a Searcher knows without the server, see Config.Known. They are
// apart from the others: who may cause a search of the server does not join one of these. It is
// guarded by Checker.mu.
type knowing struct {
	pending map[Prefix]*part              // as Checker.pending
	unknown *lru.Cache[Prefix, time.Time] // when it did not know all about a prefix
}

func newKnowing() (*knowing, error) {
	unknown, err := lru.New[Prefix, time.Time](maxPutOff)
	if err != nil {
		return nil, fmt.Errorf("making a cache for %d prefixes: %w", maxPutOff, err)
	}
	return &knowing{pending: make(map[Prefix]*part), unknown: unknown}, nil
}

// refused returns the part about a prefix for which a search was not admitted. If the client's share
// is spent, the Searcher is asked for what it knows. The caller holds mu.
func (c *Checker) refused(p Prefix, err error) *part {
	k := c.knowing
	if k == nil || !errors.Is(err, ErrShare) {
		return ended(serverAnswer{}, err)
	}
	if under := k.pending[p]; under != nil {
		return under
	}
	if at, ok := k.unknown.Get(p); ok && time.Since(at) < MaxUnanswered {
		return ended(serverAnswer{}, err)
	}
	return c.enqueue(p, nil, err)
}

// pendingAs returns the parts that are under way, or about to be, in searches as s. The caller holds
// mu.
func (c *Checker) pendingAs(s *search) map[Prefix]*part {
	if s.refusal != nil {
		return c.knowing.pending
	}
	return c.pending
}
