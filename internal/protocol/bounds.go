package protocol

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// bound is what one answer that is read whole may take. docs/performance.md states each.
type bound struct {
	bytes   int64 // of the body, on the wire and decompressed
	structs int   // bytes of memory, by weight, for the messages and numbers in it
}

var (
	// An answer about lookup.MaxPrefixes prefixes, with 16 full hashes behind each
	// and four details in each of these, has 35 kB; in JSON 180 kB.
	boundSearch = bound{256 << 10, 1 << 20}
	// Google's list of lists has some ten entries.
	boundLists = bound{1 << 20, 1 << 20}
	// Ten million entries in one answer, more than all of Google's lists together
	// had, are 13 MB; in JSON 17 MB.
	boundUpdates = bound{32 << 20, 8 << 20}
	// A list of which not all can be decoded while it comes. That is a partial
	// update, and one of this size would be longer than a full one.
	boundList = bound{16 << 20, 1 << 20}
)

const (
	// maxListBytes bounds an answer with lists that are decoded while they come, in
	// bytes. The largest list known is under 10 MB on the wire.
	maxListBytes = 128 << 20

	// Up to freeBytes of an answer may be decompressed from any number of bytes, as
	// much as a search may have four times over. Of more, there may be maxRatio bytes
	// for each on the wire. Rice-coded lists do not compress, and in JSON to three
	// quarters. The most that gzip reaches is 1,032.
	freeBytes = 1 << 20
	maxRatio  = 16

	maxErrorBytes   = 1 << 14 // of the text of an error; the rest is left
	maxVersionBytes = 1 << 10 // Google's have some dozen
	maxLists        = 1000    // in the list of lists
	maxSets         = 32      // of additions, and of removals, to a list in version 4: there are 29 lengths of a prefix
)

// What an element takes in memory, roughly, beside the bytes that it is of.
const (
	messageWeight = 160
	numberWeight  = 8
)

// check returns an error if the message in raw would take more memory than b
// allows. It reads each byte at most as often as messages are nested.
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

// weigh returns what is left of an allowance of memory, in bytes, when the message
// in raw has been decoded: it is negative if the message takes more. Of a malformed
// message only the part before the fault counts.
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
