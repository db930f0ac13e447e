// Package script reads batch scripts for the command that submits them: Check says what is no batch
// script, Parse finds the #SBATCH and #GBATCH lines and what looks like one and isn't.
//
// A directive is a line that begins, in the first column, with #SBATCH or #GBATCH, before the first
// command: the first line that is neither empty nor a comment. Its words are quoted as real sbatch
// reads them (22.05): single and double quotes, and a backslash that takes the next character as it
// is, inside quotes of both kinds too; nothing is expanded; an unquoted # begins a comment even
// inside a word. Better than there: a quoted empty word is a word, and a backslash before a blank
// makes it part of the word.
//
// script.go has Parse, suspect.go what looks like a directive and isn't, check.go Check.
//
// It knows no option: words go to getopt.Parser.Directive, in order.
package script
