package protocol

import (
	"fmt"
	"mime"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// readWhole reads a whole answer into m. It fails if the answer exceeds b.
func readWhole(answer *http.Response, b bound, m proto.Message) error {
	raw, err := readAll(answer)
	if err != nil {
		return err
	}
	if int64(len(raw)) > b.bytes {
		return tooLong(b.bytes)
	}
	contentType := answer.Header.Get("Content-Type")
	if err := b.check(raw, contentType, m.ProtoReflect().Descriptor()); err != nil {
		return err
	}
	return decode(contentType, raw, m)
}

// mediaType returns a Content-Type without its parameters, or "" if it is malformed.
func mediaType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// isBinary reports whether an answer with this Content-Type is a binary protobuf message. A
// missing type counts as binary.
func isBinary(contentType string) bool {
	switch mediaType(contentType) {
	case "", "application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf", "application/octet-stream":
		return true
	}
	return false
}

// decode decodes an answer, binary or JSON: some servers send JSON whatever the client asks
// for.
func decode(contentType string, body []byte, m proto.Message) (err error) {
	switch {
	case isBinary(contentType):
		err = proto.Unmarshal(body, m)
	case mediaType(contentType) == "application/json":
		if _, search := m.(*sbv5.SearchHashesResponse); search {
			body, err = keepAttributes(body)
		}
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, m)
		}
	default:
		err = fmt.Errorf("an answer of type %q", contentType)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	return nil
}
