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

// maxWhole is the size up to which the message of a list is read whole, in bytes.
// The additions of a longer one, which has some million entries, are decoded while
// they come. It is less where a test has short ones.
var maxWhole = int64(1 << 20)

// readBatch reads the answer to hashLists.batchGet while it comes, one list after
// the other. Lists that are not decoded while they come fail once ctx has ended; so
// must body.
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
		if err := readList(ctx, top, wanted[n].List, func(u *updater.Update) { take(n, u) }); err != nil {
			return err
		}
		n++
	}
}

// readOne reads the answer to hashList.get, of length bytes, while it comes, as
// readBatch does. A negative length is one that is not known.
func readOne(ctx context.Context, body io.Reader, length int64, name string, take func(u *updater.Update)) error {
	return readListMessage(ctx, &message{from: bufio.NewReaderSize(body, 1<<15), left: length}, name, take)
}

// readList reads the field that holds the message of a list, which must have that
// name.
func readList(ctx context.Context, from *message, name string, take func(u *updater.Update)) error {
	m, err := from.sub()
	if err != nil {
		return err
	}
	return readListMessage(ctx, m, name, take)
}

func readListMessage(ctx context.Context, m *message, name string, take func(u *updater.Update)) (err error) {
	l := &streamedList{message: m, ctx: ctx, name: name}
	if m.left >= 0 && m.left <= maxWhole {
		err = l.readRest()
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
	return ctx.Err() // an update that was cut short by it is not wrong
}

// streamedList is the message of a list that is being read.
type streamedList struct {
	*message
	ctx   context.Context // of what is decoded from rest
	name  string
	rest  []byte // what was read of it, but for additions that are decoded while they come
	tried bool   // there were additions
	taken bool   // they have been decoded while they came
}

// parsed returns the message as far as it is in rest.
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

// readRest reads all that is left into rest.
func (l *streamedList) readRest() (err error) {
	l.rest, err = l.appendBytes(l.rest, l.left)
	return err
}

// widthOfField returns the width of the additions in a field of a list's message.
func widthOfField(field protowire.Number) (width int, ok bool) {
	width, ok = map[protowire.Number]int{4: 4, 9: 8, 10: 16, 11: 32}[field]
	return width, ok
}

// read reads the message up to its end. Additions of a full update are decoded
// while they come: nothing that stands behind them is needed for it. Writers put
// the fields into the order of their numbers; where one does not, or where the
// update is partial, the message is read whole. The message so far is looked at
// once only, however often there are additions in it.
func (l *streamedList) read(take func(u *updater.Update)) error {
	for l.left != 0 {
		field, kind, err := l.tag()
		if err == io.EOF && l.left < 0 {
			return nil
		}
		if err != nil {
			return unexpected(err)
		}
		if width, ok := widthOfField(field); ok && kind == protowire.BytesType && !l.tried {
			l.tried = true
			list, err := l.parsed()
			if err == nil && list.Version != nil && !list.PartialUpdate {
				if err := l.stream(width, list, take); err != nil {
					return err
				}
				continue
			}
		}
		if err := l.keep(field, kind); err != nil {
			return err
		}
	}
	return nil
}

// keep reads a field into rest.
func (l *streamedList) keep(field protowire.Number, kind protowire.Type) (err error) {
	l.rest, err = l.appendField(l.rest, field, kind, boundList.bytes)
	return err
}

// stream hands the additions to take while they come. What stands behind them is
// read when the last one has been.
func (l *streamedList) stream(width int, list *sbv5.HashList, take func(u *updater.Update)) error {
	coded, err := l.sub()
	if err != nil {
		return err
	}
	u := updateOf(l.ctx, list)
	additions, data, err := readRice(coded, width)
	if err != nil {
		return err
	}
	l.taken = true
	if u.Err == nil {
		u.Err = checkAdditions(list.GetName(), additions)
	}
	end := sync.OnceValue(func() error { // its errors are those of the whole answer
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
		u.Additions = []updater.Entries{{Width: width, Count: int(additions.count) + 1, Reader: reader}}
	}
	take(u)
	return end()
}

// finish completes an update whose additions have been read with what came later.
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

// fieldOfData is the number of the field with the coded data, by width.
var fieldOfData = map[int]protowire.Number{4: 4, 8: 4, 16: 5, 32: 7}

// maxRiceHead is the most bytes that may be before the coded data in a message of
// additions: some numbers.
const maxRiceHead = 1024

// readRice reads a message of additions up to the coded data.
func readRice(m *message, width int) (r rice, data *message, err error) {
	head := make([]byte, 0, 64)
	for m.left > 0 {
		field, kind, err := m.tag()
		if err != nil {
			return rice{}, nil, unexpected(err)
		}
		if kind == protowire.BytesType && field == fieldOfData[width] { // the last one
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
	r, err = riceOf(head, width)
	r.size = data.left
	return r, data, err
}

// riceOf parses a message of additions without its data.
func riceOf(head []byte, width int) (rice, error) {
	list := new(sbv5.HashList)
	field := map[int]protowire.Number{4: 4, 8: 9, 16: 10, 32: 11}[width]
	raw := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), head)
	if err := proto.Unmarshal(raw, list); err != nil {
		return rice{}, fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	r, _ := additionsOf(list)
	return r, nil
}
