package script

import (
	"bytes"
	"fmt"
	"strconv"
)

// CheckError says why a file is no batch script, in Slurm's words if Slurm has them. The program's name and "error: "
// are printed before each line of the text.
type CheckError struct{ Text string }

func (e *CheckError) Error() string { return e.Text }

// Check refuses data that can't be run as a batch script: empty, only blanks, more than maxBytes (0: MaxBytes), no #!
// line, DOS line ends, NUL bytes. The error is a *CheckError.
func Check(data []byte, maxBytes int) error {
	if maxBytes <= 0 {
		maxBytes = MaxBytes
	}
	switch {
	case len(data) == 0:
		return &CheckError{"Batch script is empty!"}
	case len(data) > maxBytes:
		return TooLong(int64(len(data)), maxBytes)
	case len(bytes.TrimSpace(data)) == 0:
		return &CheckError{"Batch script contains only whitespace!"}
	}
	first, _, _ := bytes.Cut(data, []byte{'\n'})
	if !bytes.HasPrefix(first, []byte("#!")) || len(bytes.TrimSpace(first[2:])) == 0 {
		return &CheckError{"This does not look like a batch script.  The first\n" +
			"line must start with #! followed by the path to an interpreter.\n" +
			"For instance: #!/bin/sh"}
	}
	if i := bytes.Index(data, []byte("\r\n")); i >= 0 {
		return &CheckError{"Batch script contains DOS line breaks (\\r\\n)\n" +
			"instead of expected UNIX line breaks (\\n).\n" +
			"The first is in line " + line(data, i) + ". To convert the file: sed -i 's/\\r$//' FILE"}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return &CheckError{"Batch script contains a NUL byte, in line " + line(data, i) + ":\n" +
			"it is a binary file or was damaged. Submit a script that starts the program."}
	}
	return nil
}

// TooLong is Check's error for a script longer than maxBytes, for a reader that stops there.
func TooLong(size int64, maxBytes int) error {
	return &CheckError{fmt.Sprintf("Batch script is too long: %d bytes, the limit is %d (max_script_size).\n"+
		"Keep data in files of their own and let the script read them.", size, maxBytes)}
}

func line(data []byte, at int) string { return strconv.Itoa(1 + bytes.Count(data[:at], []byte{'\n'})) }
