package updater

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Asker names who asks a server, for Origin.Asker: it tells two keys apart and
// tells neither. A hash of four bytes cannot be turned back into a key.
func Asker(endpoint, key string) string {
	sum := sha256.Sum256([]byte(endpoint + "\x00" + key))
	return hex.EncodeToString(sum[:4])
}

// maxOthers is how many askers are remembered beside the one that asks.
const maxOthers = 8

// askedBy makes the state that of another asker, if it is not. A back-off and a
// wait belong to the key and the endpoint that they were given to: another asker
// starts with a first contact of its own, or goes on where it stopped. How old a
// list is, and whether it must be fetched in full, has nothing to do with who
// asks. A state that names no asker was written before there were any.
func (s *scheduleState) askedBy(asker string, now time.Time) {
	if asker == "" || s.Asker == asker {
		return
	}
	if s.Asker == "" {
		s.Asker = asker
		return
	}
	last, next := s.clockSet, s.Others[asker]
	others := maps.Clone(s.Others)
	if others == nil {
		others = make(map[string]clockSet)
	}
	delete(others, asker)
	others[s.Asker] = last
	s.Others = pruned(others, now)
	lists := make(map[string]ListClock)
	maps.Copy(lists, next.Lists)
	for name, list := range last.Lists {
		own := lists[name]
		own.Updated, own.Rejected = list.Updated, list.Rejected
		lists[name] = own
	}
	next.Lists = lists
	s.Asker, s.clockSet = asker, next
}

// pruned returns those of the clocks that run at now: at most maxOthers, which run
// longest.
func pruned(others map[string]clockSet, now time.Time) map[string]clockSet {
	maps.DeleteFunc(others, func(_ string, c clockSet) bool { return !c.latest().After(now) })
	names := slices.SortedFunc(maps.Keys(others), func(a, b string) int { return others[b].latest().Compare(others[a].latest()) })
	for _, name := range names[min(len(names), maxOthers):] {
		delete(others, name)
	}
	return others
}

// latest returns when the last of the clocks ends.
func (c clockSet) latest() time.Time {
	latest := c.Fetch.NotBefore
	for _, t := range append(slices.Collect(maps.Values(c.Lists)), ListClock{Clock: c.Search}) {
		if t.NotBefore.After(latest) {
			latest = t.NotBefore
		}
	}
	return latest
}

// move changes the end of every clock.
func (s *scheduleState) move(by func(time.Time) time.Time) {
	s.clockSet.move(by)
	for name, c := range s.Others {
		c.move(by)
		s.Others[name] = c
	}
}

func (c *clockSet) move(by func(time.Time) time.Time) {
	c.Fetch.NotBefore = by(c.Fetch.NotBefore)
	c.Search.NotBefore = by(c.Search.NotBefore)
	for name, list := range c.Lists {
		list.NotBefore = by(list.NotBefore)
		c.Lists[name] = list
	}
}

// clone returns a copy that shares nothing that is changed.
func (s scheduleState) clone() scheduleState {
	s.Lists = maps.Clone(s.Lists)
	s.Others = maps.Clone(s.Others)
	for name, c := range s.Others {
		c.Lists = maps.Clone(c.Lists)
		s.Others[name] = c
	}
	return s
}

// maxCause is the longest cause of a failure that is kept, in bytes.
const maxCause = 200

// causeOf says in few words why a request failed.
func causeOf(err error) string {
	text := err.Error()
	if status, ok := errors.AsType[*StatusError](err); ok {
		text = fmt.Sprintf("status %d %s", status.Code, http.StatusText(status.Code))
		if status.Message != "" {
			text += ": " + status.Message
		}
	}
	if len(text) > maxCause {
		text = text[:maxCause]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return strings.TrimSpace(text)
}
