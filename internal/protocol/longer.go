package protocol

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Web Risk lengthens an entry that would match a popular URL (its schema, RawHashes). A list of
// version 5 has entries of one length. Cut to four bytes, such an entry matches the popular URL
// again, and cut to eight only if it has as many. So a relay gives its own clients, who ask for them
// by AsStoredHeader, longer entries just as they are, in a field that version 5 does not have. The
// list is then Web Risk's, with its removals, order and checksum over all lengths.

// fieldLonger is a field of HashList, far above those that Google has. Each is a RawHashes of Web
// Risk: entries of one length, in order.
const fieldLonger protowire.Number = 100_000_000

// AppendLonger appends entries that are longer than the name of a list says to a HashList, by their
// width. They must come before other additions, which are decoded while they come.
func AppendLonger(dst []byte, byWidth map[int][]byte) []byte {
	for _, width := range slices.Sorted(maps.Keys(byWidth)) {
		set, err := proto.Marshal(&wrv1.RawHashes{PrefixSize: int32(width), RawHashes: byWidth[width]})
		if err != nil {
			panic(err) // a message of a number and bytes can always be written
		}
		dst = protowire.AppendBytes(protowire.AppendTag(dst, fieldLonger, protowire.BytesType), set)
	}
	return dst
}

// longerOf returns the entries of a list that are longer than its name says.
func longerOf(ctx context.Context, list *sbv5.HashList) (all []updater.Entries, err error) {
	rest := list.ProtoReflect().GetUnknown()
	for len(rest) > 0 {
		field, kind, n := protowire.ConsumeTag(rest)
		size := protowire.ConsumeFieldValue(field, kind, rest[max(n, 0):])
		if n < 0 || size < 0 {
			return nil, fmt.Errorf("%w: %w", updater.ErrMalformed, protowire.ParseError(min(n, size)))
		}
		value := rest[n : n+size]
		rest = rest[n+size:]
		if field != fieldLonger || kind != protowire.BytesType {
			continue
		}
		if len(all) == maxSets {
			return nil, fmt.Errorf("%w: more than %d sets of longer entries", updater.ErrMalformed, maxSets)
		}
		entries, err := longerSet(ctx, list.GetName(), value)
		if err != nil {
			return nil, err
		}
		all = append(all, entries)
	}
	return all, nil
}

// longerSet reads the value of one fieldLonger.
func longerSet(ctx context.Context, name string, value []byte) (updater.Entries, error) {
	raw, _ := protowire.ConsumeBytes(value)
	set := new(wrv1.RawHashes)
	if err := proto.Unmarshal(raw, set); err != nil {
		return updater.Entries{}, fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	width, err := updater.Width(name)
	if err != nil {
		return updater.Entries{}, err
	}
	if int(set.PrefixSize) <= width {
		return updater.Entries{}, fmt.Errorf("%w: entries of %d bytes as longer ones of list %s", updater.ErrMalformed, set.PrefixSize, name)
	}
	return rawEntries(ctx, set.PrefixSize, set.RawHashes)
}
