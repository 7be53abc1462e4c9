// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// loadAddress is the address of the program: any page above the kernel's vm.mmap_min_addr.
const loadAddress = 0x400000

// executable returns a minimal static ELF file for machine code, whose entry point is its first byte: header, two
// program headers, code. One segment maps the whole file readable and executable. The other requests a
// stack that is not executable.
func executable(machine uint16, image []byte) []byte {
	const headers = 64 + 2*56
	size := uint64(headers + len(image))
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F',
			elf.EI_CLASS: byte(elf.ELFCLASS64), elf.EI_DATA: byte(elf.ELFDATA2LSB), elf.EI_VERSION: byte(elf.EV_CURRENT),
		},
		Type: uint16(elf.ET_EXEC), Machine: machine, Version: uint32(elf.EV_CURRENT),
		Entry: loadAddress + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2,
	}
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: loadAddress, Paddr: loadAddress, Filesz: size, Memsz: size, Align: 0x10000,
	}
	stack := elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16}

	var b bytes.Buffer
	for _, part := range []any{header, load, stack, image} {
		// Writing fixed-size values to a buffer cannot fail.
		_ = binary.Write(&b, binary.LittleEndian, part)
	}
	return b.Bytes()
}
