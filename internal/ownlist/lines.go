package ownlist

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the longest line, in bytes, that is looked at.
const maxLine = 4 << 10

// eachLine calls do with each line of r, numbered from 1, without what ends it
// and without a byte order mark. The line is valid during the call only. A line
// longer than maxLine comes cut, with long set: memory does not depend on what
// is read. It returns the error of reading, if any.
func eachLine(r io.Reader, do func(number int, line []byte, long bool)) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, err := br.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		line = bytes.TrimRight(line, "\r\n")
		if long = long || len(line) > maxLine; long {
			line = line[:maxLine]
		}
		if len(line) > 0 || err == nil {
			do(number, line, long)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = br.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
