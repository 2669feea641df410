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

// readWhole reads an answer, within b, into m.
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

func mediaType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// isBinary reports whether an answer of that type is a message in binary form.
func isBinary(contentType string) bool {
	switch mediaType(contentType) {
	case "", "application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf", "application/octet-stream":
		return true
	}
	return false
}

// decode reads an answer in binary form, or in the JSON form that some servers
// send whatever they are asked.
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
