package updater

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Errors of an update that must not be applied.
var (
	ErrChecksum  = errors.New("checksum does not match")
	ErrMalformed = errors.New("malformed update")
)

// ErrDamaged says that a file is not what was once written.
var ErrDamaged = errors.New("damaged file")

// ErrBusy says that another process or engine uses the folder.
var ErrBusy = errors.New("the folder is in use")

// NotDueError says that none of the lists may be fetched yet.
type NotDueError struct {
	Until time.Time // when the first of them may be
}

// Error implements error.
func (e *NotDueError) Error() string {
	return "nothing may be fetched before " + e.Until.Format(time.RFC3339)
}

// StatusError is an answer with another status than 200.
type StatusError struct {
	Code       int           // HTTP status
	Message    string        // what the server said of it, may be empty
	RetryAfter time.Duration // that the server asked for; 0: none
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the server answered status %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// retryAfter returns how long the server asked to be left alone: at most as long as
// a back-off can last. The header is no rule of Safe Browsing, and anything between
// here and the server can send it.
func retryAfter(err error) time.Duration {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return min(status.RetryAfter, maxBackoff)
	}
	return 0
}

// refused reports whether a server does not want to be asked.
func refused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Code == http.StatusForbidden || status.Code == http.StatusTooManyRequests)
}

// refusesLists reports whether a server does not know a list that it was asked for,
// which may be one of several: one that it does not know fails a whole batch.
func refusesLists(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Code == http.StatusBadRequest || status.Code == http.StatusNotFound)
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
