package protocol

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// bound limits an answer that is read whole. docs/reliability.md states each bound.
type bound struct {
	bytes   int64 // of the body, compressed and decompressed
	structs int   // of memory for the decoded messages and numbers, by their weights
}

var (
	// An answer about lookup.MaxPrefixes prefixes, with two full hashes for each prefix and
	// four details for each hash, has 35 kB; in JSON 180 kB. Nearly all prefixes have one.
	boundSearch = bound{256 << 10, 1 << 20}
	// Google's list of lists has some ten entries.
	boundLists = bound{1 << 20, 1 << 20}
	// Ten million entries in one answer, more than all of Google's lists together
	// had, are 13 MB; in JSON 17 MB.
	boundUpdates = bound{32 << 20, 8 << 20}
	// The parts of a streamed list that are not decoded while they come: a partial
	// update. One of this size would be longer than a full update.
	boundList = bound{16 << 20, 1 << 20}
)

const (
	// maxListBytes is the most bytes of an answer with lists that are decoded while they
	// come. The largest known list has less than 10 MB on the wire.
	maxListBytes = 128 << 20

	// A body may have freeBytes from any number of compressed bytes, and beyond that
	// maxRatio bytes for each compressed byte. freeBytes is four times boundSearch.
	// Rice-coded lists do not compress in binary form; in JSON they shrink to three
	// quarters. gzip itself can reach a ratio of 1,032.
	freeBytes = 1 << 20
	maxRatio  = 16

	maxErrorBytes   = 1 << 14 // of the body of an error that are read
	maxVersionBytes = 1 << 10 // Google's versions have a few dozen
	maxLists        = 1000    // in the list of lists
	maxSets         = 32      // of additions, and of removals, to a list: prefixes have 29 lengths
)

// The weights: roughly the bytes of memory of a decoded element, without its content.
const (
	messageWeight = 160
	numberWeight  = 8
)

// check returns an error if decoding raw would take more memory than b allows. It reads a
// byte at most once for each level of nested messages.
func (b bound) check(raw []byte, contentType string, kind protoreflect.MessageDescriptor) error {
	left := b.structs
	if isBinary(contentType) {
		left = weigh(raw, kind, left)
	} else {
		left -= messageWeight*bytes.Count(raw, []byte{'{'}) + numberWeight*bytes.Count(raw, []byte{','})
	}
	if left < 0 {
		return fmt.Errorf("%w: the answer of %d bytes would take more than %d bytes of memory", updater.ErrMalformed, len(raw), int64(b.structs)+b.bytes)
	}
	return nil
}

// weigh subtracts the weight of the message in raw from left, an allowance in bytes of
// memory, and returns the rest. A negative rest means that the message is too heavy. If the
// message is malformed, only the part before the fault counts.
func weigh(raw []byte, kind protoreflect.MessageDescriptor, left int) int {
	for len(raw) > 0 && left >= 0 {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return left
		}
		raw = raw[n:]
		size := protowire.ConsumeFieldValue(number, wire, raw)
		if size < 0 {
			return left
		}
		left -= numberWeight
		if field := kind.Fields().ByNumber(number); field != nil && wire == protowire.BytesType {
			left = weighBytes(raw[:size], field, left)
		}
		raw = raw[size:]
	}
	return left
}

// weighBytes is weigh for one field with a length.
func weighBytes(raw []byte, field protoreflect.FieldDescriptor, left int) int {
	value, _ := protowire.ConsumeBytes(raw)
	switch {
	case field.Message() != nil:
		return weigh(value, field.Message(), left-messageWeight)
	case field.IsPacked():
		for _, b := range value {
			if b < 0x80 { // the last byte of a number
				left -= numberWeight
			}
		}
	}
	return left
}
