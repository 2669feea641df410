// Package crash ends programs at each of their writes, and looks at what the next start
// finds. It runs this test binary again as the program, under ptrace, so that no moment is
// left out: each system call that changes a file of the store, or makes a change durable, is
// a point. Its tests need Linux on amd64.
package crash
