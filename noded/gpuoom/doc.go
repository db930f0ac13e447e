// Package gpuoom tells from what a program wrote that a GPU had too little memory for it.
//
// The driver tells nobody else: the program gets an error, and prints it in the words of its
// library before it fails. It owns these words, in gpuoom.go. It reads no files: package noded
// gives it the end of a failed job's or task's output, and the relays of steps, whose tasks write
// to another host or to a pipe, show it all that passes (watch.go).
package gpuoom
