// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pause makes the program that holds a pod's sandbox: the first process
// of its namespaces, which waits until the pod is over.
//
// The program is made here, from a table of four system calls, and not compiled
// from C or Go: so it needs no C compiler, no binary in the repository and no build
// step, is the same for whoever imports Kindred as a library, and costs a pod one
// page of memory instead of a language's runtime. See
// docs/decisions/0001-pause-image.md.
//
// What it does, as a C program would say it:
//
//	sigaction(SIGCHLD, {SIG_IGN});
//	sigprocmask(SIG_BLOCK, {SIGINT, SIGTERM});
//	while (sigtimedwait({SIGINT, SIGTERM}, NULL, NULL) < 0)
//		;
//	exit(0);
//
// Ignoring SIGCHLD makes the kernel reap children at once, adopted ones too
// (sigaction(2), POSIX.1-2001), which is the duty of a PID namespace's first process.
// Blocking is what lets the two signals arrive: the kernel drops a signal to
// the first process of a PID namespace whose action is the default one, unless it is
// blocked (pid_namespaces(7)). An interrupted wait (SIGSTOP and SIGCONT) starts again.
package pause

import "fmt"

// What the kernel's ABI says alike on both architectures.
const (
	sigInt   = 2
	sigTerm  = 15
	sigChld  = 17
	sigIgn   = 1 // the handler SIG_IGN
	sigBlock = 0 // the first argument of rt_sigprocmask
	sigSize  = 8 // bytes of a kernel signal set
)

// address is an argument that points into the program's data.
type address int

// The program's data: a struct sigaction of four words (handler, flags, restorer,
// mask), of which the first is the handler, and a signal set.
const (
	actionOffset = address(0)
	signalOffset = address(32)
)

func data() []byte {
	d := make([]byte, 40)
	d[actionOffset] = sigIgn
	signals := uint64(1<<(sigInt-1) | 1<<(sigTerm-1))
	for i := range 8 {
		d[int(signalOffset)+i] = byte(signals >> (8 * i))
	}
	return d
}

// call is a system call: the number is looked up by name for each architecture, an
// argument is a small constant (int) or an address.
type call struct {
	name string
	args []any
	// again repeats the call while it fails.
	again bool
}

var program = []call{
	{name: "rt_sigaction", args: []any{sigChld, actionOffset, 0, sigSize}},
	{name: "rt_sigprocmask", args: []any{sigBlock, signalOffset, 0, sigSize}},
	{name: "rt_sigtimedwait", args: []any{signalOffset, 0, 0, sigSize}, again: true},
	{name: "exit_group", args: []any{0}},
}

// encoder writes machine code of one architecture.
type encoder interface {
	// machine is the architecture's number in an ELF header.
	machine() uint16
	// constant loads a small number in the register of the n-th argument.
	constant(n int, value int)
	// pointer loads the address of a place which is at offset from the code's start.
	pointer(n int, offset int)
	// syscall loads the call's number and traps.
	syscall(name string)
	// branchIfNegative jumps to an offset when the result is negative.
	branchIfNegative(offset int)
	// code is what was written so far.
	code() []byte
}

// encoders holds an architecture's encoder under its Go name.
var encoders = map[string]func() encoder{
	"amd64": func() encoder { return &amd64{} },
	"arm64": func() encoder { return &arm64{} },
}

// Binary is the program as an ELF executable for a Go architecture name.
func Binary(arch string) ([]byte, error) {
	newEncoder, ok := encoders[arch]
	if !ok {
		return nil, fmt.Errorf("no pause program for architecture %s, only for amd64 and arm64", arch)
	}
	// Data stands after the code, whose length does not depend on where that is:
	// assemble once to learn it.
	draft := newEncoder()
	assemble(draft, 0)
	dataStart := (len(draft.code()) + 7) &^ 7
	e := newEncoder()
	assemble(e, dataStart)
	image := append(make([]byte, 0, dataStart+40), e.code()...)
	image = append(image, make([]byte, dataStart-len(image))...)
	return executable(e.machine(), append(image, data()...)), nil
}

func assemble(e encoder, dataStart int) {
	for _, c := range program {
		start := len(e.code())
		for n, arg := range c.args {
			switch a := arg.(type) {
			case int:
				e.constant(n, a)
			case address:
				e.pointer(n, dataStart+int(a))
			}
		}
		e.syscall(c.name)
		if c.again {
			e.branchIfNegative(start)
		}
	}
}
