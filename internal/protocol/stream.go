package protocol

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// maxWhole is the most bytes of a list's message that is read whole. A longer message has
// millions of entries: its additions are decoded while they come. It is a variable because
// tests lower it.
var maxWhole = int64(1 << 20)

// readBatch reads the answer to hashLists.batchGet while it comes, one list after the other.
// Entries of lists that it has read whole fail once ctx has ended; body must fail then too.
func readBatch(ctx context.Context, body io.Reader, wanted []updater.Want, take func(i int, u *updater.Update)) error {
	top := &message{from: bufio.NewReaderSize(body, 1<<15), left: -1}
	n := 0
	for {
		field, kind, err := top.tag()
		switch {
		case err == io.EOF && n == len(wanted):
			return nil
		case err == io.EOF:
			return fmt.Errorf("%w: %d lists in the answer, asked for %d", updater.ErrMalformed, n, len(wanted))
		case err != nil:
			return err
		case field != 1 || kind != protowire.BytesType:
			if err := top.skip(kind); err != nil {
				return err
			}
			continue
		case n == len(wanted):
			return fmt.Errorf("%w: more than the %d lists in the answer that were asked for", updater.ErrMalformed, n)
		}
		list, err := top.sub()
		if err != nil {
			return err
		}
		if err := readList(ctx, list, wanted[n].List, func(u *updater.Update) { take(n, u) }); err != nil {
			return err
		}
		n++
	}
}

// readOne is readBatch for the answer to hashList.get. The answer has length bytes; a negative
// length is unknown.
func readOne(ctx context.Context, body io.Reader, length int64, name string, take func(u *updater.Update)) error {
	size := 1 << 15
	if length >= 0 { // most answers are short: the list has not changed
		size = int(min(length, 1<<15))
	}
	return readList(ctx, &message{from: bufio.NewReaderSize(body, size), left: length}, name, take)
}

// readList reads the message of a list up to its end. It passes the update to take once, if there
// is one. It is an error if the list has another name.
func readList(ctx context.Context, m *message, name string, take func(u *updater.Update)) (err error) {
	l := &streamedList{message: m, ctx: ctx, name: name}
	if m.left >= 0 && m.left <= maxWhole {
		l.rest, err = m.appendBytes(nil, m.left)
	} else {
		err = l.read(take)
	}
	if err != nil || l.taken {
		return err
	}
	list, err := l.parsed()
	if err != nil {
		return err
	}
	take(updateOf(ctx, list))
	return ctx.Err() // if ctx has ended, the update may be truncated: that is not the server's fault
}

// streamedList reads the message of one list.
type streamedList struct {
	*message
	ctx   context.Context // bounds the decoding of rest
	name  string
	rest  []byte // all fields read so far, except streamed additions
	tried bool   // a field with additions has come
	taken bool   // the additions were streamed, and take has been called
}

// parsed returns the message with the fields in rest.
func (l *streamedList) parsed() (*sbv5.HashList, error) {
	list := new(sbv5.HashList)
	if err := boundList.check(l.rest, "", list.ProtoReflect().Descriptor()); err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(l.rest, list); err != nil {
		return nil, fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	if list.GetName() != l.name {
		return nil, otherList(list.GetName(), l.name)
	}
	return list, nil
}

// widthOfField is the width of the additions in a field of HashList (schema of version 5).
var widthOfField = map[protowire.Number]int{4: 4, 9: 8, 10: 16, 11: 32}

// read reads the message up to its end. It streams the additions of a full update. That is
// possible because the fields before them, name, version and kind of update, are enough to
// begin. Writers order fields by their numbers. If one does not, or if the update is partial,
// read keeps the whole message in rest. It parses rest for this decision only once, however
// many fields have additions.
func (l *streamedList) read(take func(u *updater.Update)) error {
	for l.left != 0 {
		field, kind, err := l.tag()
		if err == io.EOF && l.left < 0 {
			return nil
		}
		if err != nil {
			return unexpected(err)
		}
		if widthOfField[field] > 0 && kind == protowire.BytesType && !l.tried {
			l.tried = true
			list, err := l.parsed()
			if err == nil && list.Version != nil && !list.PartialUpdate {
				if err := l.stream(field, list, take); err != nil {
					return err
				}
				continue
			}
		}
		if l.rest, err = l.appendField(l.rest, field, kind, boundList.bytes); err != nil {
			return err
		}
	}
	return nil
}

// stream passes an update to take whose additions, those in a field, are decoded while they come. After
// the last addition it reads the fields behind them and completes the update.
func (l *streamedList) stream(field protowire.Number, list *sbv5.HashList, take func(u *updater.Update)) error {
	coded, err := l.sub()
	if err != nil {
		return err
	}
	u := updateOf(l.ctx, list)
	additions, data, err := readRice(coded, field)
	if err != nil {
		return err
	}
	l.taken = true
	if u.Err == nil {
		u.Err = checkAdditions(list.GetName(), additions)
	}
	end := sync.OnceValue(func() error { // an error here is an error of the whole answer
		for _, m := range []*message{data, coded} {
			if _, err := io.Copy(io.Discard, m); err != nil {
				return err
			}
		}
		if err := l.read(nil); err != nil {
			return err
		}
		whole, err := l.parsed()
		if err != nil {
			return err
		}
		l.finish(u, whole)
		return nil
	})
	if u.Err == nil {
		reader := additions.reader()
		reader.source, reader.end = data, end
		u.Additions = append(u.Additions, updater.Entries{Width: additions.width, Count: int(additions.count) + 1, Reader: reader})
	}
	take(u)
	return end()
}

// finish completes an update with the fields that came after its additions.
func (l *streamedList) finish(u *updater.Update, list *sbv5.HashList) {
	last := updateOf(l.ctx, list)
	u.Checksum, u.MinimumWait = last.Checksum, last.MinimumWait
	switch {
	case u.Err != nil:
	case last.Err != nil:
		u.Err = last.Err
	case list.GetPartialUpdate() || list.GetCompressedRemovals() != nil || list.GetCompressedAdditions() != nil:
		u.Err = fmt.Errorf("%w: removals, further additions or a partial update behind the additions of a full one", updater.ErrMalformed)
	}
}

// fieldOfData is the number of the field with the coded data, by width (schema of version 5).
var fieldOfData = map[int]protowire.Number{4: 4, 8: 4, 16: 5, 32: 7}

// maxRiceHead is the most bytes before the coded data in a message of additions. There are
// only a few numbers.
const maxRiceHead = 1024

// readRice reads the message in a field of additions up to the coded data, and returns that as a message.
func readRice(m *message, of protowire.Number) (r rice, data *message, err error) {
	head := make([]byte, 0, 64)
	for m.left > 0 {
		field, kind, err := m.tag()
		if err != nil {
			return rice{}, nil, unexpected(err)
		}
		if kind == protowire.BytesType && field == fieldOfData[widthOfField[of]] { // the last field
			if data, err = m.sub(); err != nil {
				return rice{}, nil, err
			}
			break
		}
		if head, err = m.appendField(head, field, kind, maxRiceHead); err != nil {
			return rice{}, nil, err
		}
	}
	if data == nil {
		data = &message{from: m}
	}
	list := new(sbv5.HashList)
	raw := protowire.AppendBytes(protowire.AppendTag(nil, of, protowire.BytesType), head)
	if err := proto.Unmarshal(raw, list); err != nil {
		return rice{}, nil, fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	r, _ = additionsOf(list)
	r.size = data.left
	return r, data, nil
}
