// Package wrv1 holds the Web Risk v1 messages, generated from the .proto file
// beside it. Do not edit the generated file: change the schema and run
//
//	go generate ./internal/protocol/pb/wrv1
//
// which needs protoc (Debian package protobuf-compiler); the Go plugin of
// protoc is a tool of this module, pinned in go.mod.
package wrv1

//go:generate sh -c "protoc --plugin=protoc-gen-go=$(go tool -n protoc-gen-go) --go_out=. --go_opt=paths=source_relative webrisk_v1.proto"
