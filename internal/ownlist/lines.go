package ownlist

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxLine is the longest line, in bytes, that is looked at.
const maxLine = 4 << 10

// eachLine calls do with each line of r, numbered from 1, without what ends it
// and without a byte order mark. The line is valid during the call only. A line
// longer than maxLine comes cut, with long set: memory does not depend on what
// is read. It returns the error of reading, if any, and a notListError if r holds
// something that has no lines of a list.
func eachLine(r io.Reader, do func(number int, line []byte, long bool)) error {
	br := bufio.NewReaderSize(r, 64<<10)
	head, _ := br.Peek(sniffBytes) // an error comes again
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

// sniffBytes is how much of a file http.DetectContentType looks at.
const sniffBytes = 512

// notListError says what a file seems to be that is not a list, and what to do
// about it.
type notListError struct{ seems, cure string }

// Error implements error.
func (e notListError) Error() string { return "it " + e.seems + ": " + e.cure }

// notList returns what a file that begins so is, if that cannot be a list. A
// download that failed often leaves a page of HTML, of which single words would pass
// for names.
func notList(head []byte) (e notListError, ok bool) {
	for magic, format := range compressed {
		if bytes.HasPrefix(head, []byte(magic)) {
			return notListError{"is compressed (" + format + ")", "unpack it"}, true
		}
	}
	if len(head) > 10 && string(head[:3]) == "BZh" && string(head[4:10]) == "1AY&SY" { // the level is between them
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

// compressed is the formats of files that begin so.
var compressed = map[string]string{
	"\x1f\x8b": "gzip", "PK\x03\x04": "zip", "\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd", "7z\xbc\xaf\x27\x1c": "7z",
}
