package protocoltest

import "time"

// clocks are what the rules of request frequency demand of those who ask with one
// key. Another key is another client: it starts with a first contact of its own.
type clocks struct {
	backoffs            backoffs
	fetchWait, findWait time.Time
	lists               map[string]listClocks
}

// listClocks are the clocks of one list, by way of either protocol.
type listClocks struct{ v5, v4 listClock }

// as has the referee judge those who ask with a key from now on.
func (r *referee) as(key string) {
	if key == r.key {
		return
	}
	kept := clocks{backoffs: r.backoffs, fetchWait: r.fetchWait, findWait: r.findWait, lists: map[string]listClocks{}}
	for name, l := range r.lists {
		kept.lists[name] = listClocks{l.v5, l.v4}
	}
	if r.others == nil {
		r.others = map[string]clocks{}
	}
	r.others[r.key] = kept
	own := r.others[key]
	r.key, r.backoffs, r.fetchWait, r.findWait = key, own.backoffs, own.fetchWait, own.findWait
	for name, l := range r.lists {
		l.v5, l.v4 = own.lists[name].v5, own.lists[name].v4
	}
}
