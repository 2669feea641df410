package ownlist

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxLine is the most bytes of a line that are parsed.
const maxLine = 4 << 10

// eachLine calls do for each line of r, numbered from 1, without the line break and
// without a byte order mark. The line is valid only during the call. A longer line than
// maxLine is cut, and long is set, so no file can use much memory. eachLine returns a
// notListError if r is not a list, or else the error of reading.
func eachLine(r io.Reader, do func(number int, line []byte, long bool)) error {
	br := bufio.NewReaderSize(r, 64<<10)
	head, _ := br.Peek(sniffBytes) // ReadSlice returns the same error
	if e, ok := notList(head); ok {
		return e
	}
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

// sniffBytes is the most bytes that http.DetectContentType uses.
const sniffBytes = 512

// notListError says that a file is not a list: what it seems to be, and what the operator
// can do.
type notListError struct{ seems, cure string }

// Error implements error.
func (e notListError) Error() string { return "it " + e.seems + ": " + e.cure }

// notList returns what a file seems to be, from its first bytes, if it cannot be a list.
// A failed download often leaves an HTML page, and single words on that page would pass
// for names.
func notList(head []byte) (e notListError, ok bool) {
	for magic, format := range compressed {
		if bytes.HasPrefix(head, []byte(magic)) {
			return notListError{"is compressed (" + format + ")", "unpack it"}, true
		}
	}
	if len(head) > 10 && string(head[:3]) == "BZh" && string(head[4:10]) == "1AY&SY" { // byte 3 is the level
		return notListError{"is compressed (bzip2)", "unpack it"}, true
	}
	switch detected := http.DetectContentType(head); {
	case strings.HasPrefix(detected, "text/html"), strings.HasPrefix(detected, "text/xml"):
		return notListError{"looks like an HTML page", "download the list again"}, true
	case strings.HasPrefix(detected, "text/plain; charset=utf-16"):
		return notListError{"is UTF-16", "save it as UTF-8"}, true
	}
	return notListError{}, false
}

// compressed maps the first bytes of a compressed file to its format.
var compressed = map[string]string{
	"\x1f\x8b": "gzip", "PK\x03\x04": "zip", "\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd", "7z\xbc\xaf\x27\x1c": "7z",
}
