// Package script reads batch scripts for the command that submits them: Check refuses files that
// are no batch scripts, Parse finds the #SBATCH and #GBATCH lines and lines that only look like
// them.
//
// A directive is a line that begins, in the first column, with #SBATCH or #GBATCH, before the first
// command: the first line that is neither empty nor a comment. Quoting works as in sbatch 22.05:
// single and double quotes, and a backslash that makes the next character literal, also inside
// quotes of both kinds; nothing is expanded; an unquoted # begins a comment even inside a word.
// Unlike sbatch, a quoted empty word is a word, and a backslash before a blank makes the blank part
// of the word.
//
// script.go has Parse, foreign.go the lines of other batch systems, suspect.go warnings about lines
// that only look like directives, check.go Check.
//
// The package knows no options: words go to getopt.Parser.Directive, in order.
package script
