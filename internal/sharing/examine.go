package sharing

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Fleet is what relays with one server and one key share in a Redis, as an operator sees it. It is
// a value.
type Fleet struct {
	Asker  string // fingerprint of server and key
	Newer  string // format and version of a relay whose data this program cannot read; "": none
	Alive  bool   // a relay has used these keys within the last minutes
	Holder string // of the lease; "": nobody has it
	Left   time.Duration
	Lists  []SharedList // by name; while somebody has a lease, only lists of its protocol

	leased []string // schedules: each protocol has one, and a lease and lists of its own
}

// SharedList is a list of a Fleet.
type SharedList struct {
	Name     string // "": the description of the list is damaged
	Entries  int
	Received time.Time // when the server sent the content, by the clock of Redis, or said later that it stays
	schedule string
}

// scanned is how many keys Redis looks at in one call.
const scanned = "1000"

// Fleets returns the fleets that a server has, by asker. It writes nothing, and reads all names
// of keys: ctx bounds the time.
func Fleets(ctx context.Context, client *Client) (all []Fleet, now time.Time, err error) {
	fleets := make(map[string]*Fleet)
	for cursor := ""; cursor != "0"; {
		v, err := client.Do(ctx, "examine", "SCAN", nil, cmp.Or(cursor, "0"), "MATCH", Prefix("*")+"*", "COUNT", scanned)
		if err != nil {
			return nil, now, err
		}
		answer := v.Array()
		if len(answer) != 2 {
			break
		}
		cursor = string(answer[0].Bytes())
		for _, key := range answer[1].Array() {
			if err := see(ctx, client, fleets, string(key.Bytes())); err != nil {
				return nil, now, err
			}
		}
	}
	for _, f := range fleets {
		if len(f.leased) > 0 { // lists of another protocol were left behind
			f.Lists = slices.DeleteFunc(f.Lists, func(l SharedList) bool { return !slices.Contains(f.leased, l.schedule) })
		}
		slices.SortFunc(f.Lists, func(a, b SharedList) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Fleet) int { return cmp.Compare(a.Asker, b.Asker) })
	v, err := client.Do(ctx, "examine", "TIME", nil)
	if t := v.Array(); err == nil && len(t) == 2 {
		sec, _ := t[0].Int()
		now = time.Unix(sec, 0)
	}
	return all, now, err
}

// see adds what a key tells to its fleet. SCAN may return a key more than once.
func see(ctx context.Context, client *Client, fleets map[string]*Fleet, key string) error {
	asker, name, ok := strings.Cut(strings.TrimPrefix(key, "safebrowsing:1:{"), "}:")
	kind, schedule, _ := strings.Cut(name, ":")
	command := map[string]string{"format": "GET", "lease": "GET", "heads": "HVALS"}[kind]
	if !ok || command == "" {
		return nil
	}
	f := fleets[asker]
	if f == nil {
		f = &Fleet{Asker: asker}
		fleets[asker] = f
	}
	v, err := client.Do(ctx, "examine", command, []string{key})
	text := string(v.Bytes())
	switch kind {
	case "format":
		f.Alive = text != ""
		number, _, _ := strings.Cut(text, " ")
		if n, numErr := strconv.Atoi(number); numErr == nil && n > format {
			f.Newer = text
		}
	case "lease":
		if text == "" {
			break
		}
		f.leased = append(f.leased, schedule)
		v, err = client.Do(ctx, "examine", "PTTL", []string{key})
		ms, _ := v.Int()
		f.Holder, f.Left = text, max(0, time.Duration(ms)*time.Millisecond)
	case "heads":
		document, _ := client.Do(ctx, "examine", "GET", []string{Prefix(asker) + schedule}) // without it the time of the content is told
		updated := updater.UpdatedIn(document.Bytes())
		for _, raw := range v.Array() {
			var h head
			if json.Unmarshal(raw.Bytes(), &h) != nil {
				h = head{}
			}
			if at := updated[h.List]; at.After(h.Received) { // a content that stays is not published again
				h.Received = at
			}
			if l := (SharedList{Name: h.List, Entries: h.Entries, Received: h.Received, schedule: schedule}); !slices.Contains(f.Lists, l) {
				f.Lists = append(f.Lists, l)
			}
		}
	}
	return err
}
