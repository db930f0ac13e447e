package script

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestWords checks that directives are split as by sbatch 22.05, except where noted.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{` -t 5 -J "my job" # comment --mem=5`, []string{"-t", "5", "-J", "my job"}},
		{`--time=7`, []string{"--time=7"}},
		{`	--time=4	 `, []string{"--time=4"}},
		{` --array 0-99`, []string{"--array", "0-99"}},
		{` --no-requeue `, []string{"--no-requeue"}},
		{` -J a\#b`, []string{"-J", "a#b"}},
		{` -J a\"b`, []string{"-J", `a"b`}},
		{` -J a\\b`, []string{"-J", `a\b`}},
		{` -J a\nb`, []string{"-J", "anb"}},
		{` -J "a#b"`, []string{"-J", "a#b"}},
		{` -J a"b c"d`, []string{"-J", "ab cd"}},
		{` --comment="a\"b\nc\$HOME"`, []string{`--comment=a"bnc$HOME`}},
		{` -J 'x\'y'`, []string{"-J", "x'y"}},
		{` -J 'a"b'`, []string{"-J", `a"b`}},
		{` -J 'a'"'"'b'`, []string{"-J", "a'b"}}, // shlex.quote, as submitit does
		{` --mem=$MEM -o ~/x`, []string{"--mem=$MEM", "-o", "~/x"}},
		{` -J x \`, []string{"-J", "x"}},
		{` # only a comment`, nil},
		{``, nil},
		{` -J "" --mem=5`, []string{"-J", "", "--mem=5"}}, // real sbatch loses the empty word
		{` -J a\ b`, []string{"-J", "a b"}},               // real sbatch refuses
		{` --comment=x#y`, []string{"--comment=x"}},
	} {
		got, _, problem := words(c.line, true)
		if problem != "" || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q %s, want %q", c.line, got, problem, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		directives []Directive
		warnings   []string
		command    int
	}{
		{"submitit", "#!/bin/bash\n\n# Parameters\n#SBATCH --array=0-9%10\n#SBATCH --comment='a b'\n" +
			"#SBATCH --error=/p/%A_%a_0_log.err\n#SBATCH --exclusive\n#SBATCH --mem=64GB\n#SBATCH --signal=USR2@90\n" +
			"#SBATCH --wckey=submitit\n\n# command\nexport SUBMITIT_EXECUTOR=slurm\nsrun --unbuffered python\n",
			[]Directive{{4, []string{"--array=0-9%10"}, false}, {5, []string{"--comment=a b"}, false},
				{6, []string{"--error=/p/%A_%a_0_log.err"}, false}, {7, []string{"--exclusive"}, false},
				{8, []string{"--mem=64GB"}, false}, {9, []string{"--signal=USR2@90"}, false},
				{10, []string{"--wckey=submitit"}, false}}, nil, 13},
		{"nextflow", "#!/bin/bash\n#SBATCH -J nf-p_(1)\n#SBATCH -o /w/.command.log\n#SBATCH --no-requeue \n" +
			"#SBATCH --signal B:USR2@30\n#SBATCH --array 0-99\nNXF_CHDIR=/w\n",
			[]Directive{{2, []string{"-J", "nf-p_(1)"}, false}, {3, []string{"-o", "/w/.command.log"}, false},
				{4, []string{"--no-requeue"}, false}, {5, []string{"--signal", "B:USR2@30"}, false},
				{6, []string{"--array", "0-99"}, false}}, nil, 7},
		{"torchx", "#!/bin/bash\n#SBATCH --job-name=a --ntasks=1\n#SBATCH hetjob\n#SBATCH --ntasks=2\nset -e\n",
			[]Directive{{2, []string{"--job-name=a", "--ntasks=1"}, false}, {3, []string{}, true},
				{4, []string{"--ntasks=2"}, false}}, nil, 5},
		{"packjob", "#!/bin/sh\n#SBATCHpackjob -t 3\n", []Directive{{2, []string{"-t", "3"}, true}}, nil, 0},
		{"both names", "#!/bin/sh\n#GBATCH -t 3\n#SBATCH -t 4\n",
			[]Directive{{2, []string{"-t", "3"}, false}, {3, []string{"-t", "4"}, false}}, nil, 0},
		{"comments and blanks between", "#!/bin/sh\n\n  \n#\n#x\n   # indented comment\n#SBATCH --time=4\necho\n",
			[]Directive{{7, []string{"--time=4"}, false}}, nil, 8},
		{"late", "#!/bin/sh\n#SBATCH -t 4\ncd /x\n#SBATCH -p gpu\n#SBATCH is what Slurm reads\necho\n#GBATCH --mem=4\n",
			[]Directive{{2, []string{"-t", "4"}, false}},
			[]string{"line 4: ignored: #SBATCH comes after the first command (line 3); move it above that",
				"line 7: ignored: #GBATCH comes after the first command (line 3); move it above that"}, 3},
		{"a script that writes scripts", "#!/bin/sh\ncat > a.sh <<EOF\n#!/bin/sh\n#SBATCH -t 4\nEOF\n" +
			"cat <<-'X Y' | sbatch\n#SBATCH -t 5\n\tX\nx <<<here\ni=$((1<<3))\n#SBATCH -t 6\n", nil,
			[]string{"line 11: ignored: #SBATCH comes after the first command (line 2); move it above that"}, 2},
		{"here document in the first command", "#!/bin/sh\nsbatch <<'EOF'\n#SBATCH -t 4\nEOF\n", nil, nil, 2},
		{"misspelt", "#!/bin/sh\n#SBTACH -t 4\n# SBATCH -t 4\n#sbatch --time=4\n#SBATC -p x\n #SBATCH -p x\n#SLURM -p x\n" +
			"#GBACTH -p x\n#  sbtach --hold\n", nil,
			[]string{`line 2: ignored: "#SBTACH" is a comment; did you mean #SBATCH?`,
				`line 3: ignored: "# SBATCH" is a comment; did you mean #SBATCH?`,
				`line 4: ignored: "#sbatch" is a comment; did you mean #SBATCH?`,
				`line 5: ignored: "#SBATC" is a comment; did you mean #SBATCH?`,
				"line 6: ignored: #SBATCH counts only in the first column; remove the blanks before it",
				`line 8: ignored: "#GBACTH" is a comment; did you mean #GBATCH?`,
				`line 9: ignored: "#  sbtach" is a comment; did you mean #SBATCH?`}, 0},
		{"comments on purpose", "#!/bin/sh\n##SBATCH -t 4\n###SBATCH -t 4\n# #SBATCH -t 4\n# sbatch this file with -t 5\n" +
			"# SBATCH lines follow\n# -----\n# batch - of things\n#-SBATCH -t 4\n", nil, nil, 0},
		{"a comment cuts a value", "#!/bin/sh\n#SBATCH -J x --comment=issue#5\n",
			[]Directive{{2, []string{"-J", "x", "--comment=issue"}, false}},
			[]string{`line 2: everything after the # in "--comment=issue#5" is a comment; if it belongs to the value, put the ` +
				`value in quotes`}, 0},
		{"no line end", "#!/bin/sh\n#SBATCH -J x", []Directive{{2, []string{"-J", "x"}, false}}, nil, 0},
		{"python", "#!/usr/bin/env python3\n#SBATCH -t 5\nimport os\n", []Directive{{2, []string{"-t", "5"}, false}}, nil, 3},
		{"empty", "", nil, nil, 0},
	} {
		s, err := Parse([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !reflect.DeepEqual(s.Directives, c.directives) {
			t.Errorf("%s:\n got %v\nwant %v", c.name, s.Directives, c.directives)
		}
		var warnings []string
		for _, w := range s.Warnings {
			warnings = append(warnings, w.String())
		}
		if !slices.Equal(warnings, c.warnings) {
			t.Errorf("%s: warnings\n got %s\nwant %s", c.name, strings.Join(warnings, "\n     "),
				strings.Join(c.warnings, "\n     "))
		}
		if s.Command != c.command {
			t.Errorf("%s: first command in line %d, want %d", c.name, s.Command, c.command)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	_, err := Parse([]byte("#!/bin/sh\n#SBATCH -J \"unterminated\n#SBATCH --time=3\n"))
	var e *SyntaxError
	if !errors.As(err, &e) || err.Error() != "line 2: Unmatched `\"` in [\"unterminated]" {
		t.Errorf("%v", err)
	}
	if _, err := Parse([]byte("#SBATCH --wrap='a\n")); err == nil || err.Error() != "line 1: Unmatched `'` in ['a]" {
		t.Errorf("%v", err)
	}
	if _, err := Parse([]byte("#SBATCH -J a # it's fine\n")); err != nil {
		t.Errorf("a quote in a comment: %v", err)
	}
	// The number of warnings is limited, that of directives is not.
	s, err := Parse([]byte("#!/bin/sh\n" + strings.Repeat("# SBATCH -t 4\n", 100) + "#SBATCH -t 4\nx\n" +
		strings.Repeat("#SBATCH -t 4\n", 100)))
	if err != nil || len(s.Warnings) != maxWarnings || len(s.Directives) != 1 {
		t.Errorf("%v %v", s, err)
	}
}

func TestCheck(t *testing.T) {
	const noScript = "This does not look like a batch script.  The first\n" +
		"line must start with #! followed by the path to an interpreter.\nFor instance: #!/bin/sh"
	for _, c := range []struct {
		data  string
		limit int
		want  string
	}{
		{"#!/bin/sh\necho\n", 0, ""},
		{"#! /usr/bin/env python\n", 0, ""},
		{"#!/bin/sh\nprintf 'a\rb'\n", 0, ""},
		{"", 0, "Batch script is empty!"},
		{" \n\t\n", 0, "Batch script contains only whitespace!"},
		{"echo hi\n", 0, noScript},
		{"  #!/bin/sh\n", 0, noScript},
		{"#!\necho\n", 0, noScript},
		{"\x7fELF\x00\x00", 0, noScript},
		{"#!/bin/sh\r\necho\r\n", 0, "Batch script contains DOS line breaks (\\r\\n)\n" +
			"instead of expected UNIX line breaks (\\n).\nThe first is in line 1. To convert the file: sed -i 's/\\r$//' FILE"},
		{"#!/bin/sh\necho\r\n", 0, "Batch script contains DOS line breaks (\\r\\n)\n" +
			"instead of expected UNIX line breaks (\\n).\nThe first is in line 2. To convert the file: sed -i 's/\\r$//' FILE"},
		{"#!/bin/sh\na\x00b\n", 0, "Batch script contains a NUL byte, in line 2:\n" +
			"it is a binary file or was damaged. Submit a script that starts the program."},
		{"#!/bin/sh\n", 9, "Batch script is too long: 10 bytes, the limit is 9 (max_script_size).\n" +
			"Keep data in files of their own and let the script read them."},
		{"#!/bin/sh\n", 10, ""},
		{"#!/bin/sh\n" + strings.Repeat("#\n", MaxBytes/2), 0, "Batch script is too long: 4194314 bytes, the limit is " +
			"4194304 (max_script_size).\nKeep data in files of their own and let the script read them."},
	} {
		err := Check([]byte(c.data), c.limit)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%.20q: %v", c.data, err)
		}
	}
	if w := Wrap("python x.py"); Check(w, 0) != nil ||
		string(w) != "#!/bin/sh\n# This script was created by sbatch --wrap.\n\npython x.py\n" {
		t.Errorf("%q", w)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"#!/bin/sh\n#SBATCH -J 'a b' --mem=4 # c\necho <<EOF\n#SBATCH -t 5\nEOF", "#SBTACH --x",
		"#SBATCH \\", "#SBATCH \"", "# sbatch -\xff", "x <<-", "#GBATCHhetjob"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := Check(data, 1<<16); err != nil && err.Error() == "" {
			t.Fatal("a complaint without words")
		}
		s, err := Parse(data)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Line < 1 {
				t.Fatalf("%v", err)
			}
			return
		}
		// A directive's words, quoted again, parse to the same words.
		for _, d := range s.Directives {
			quoted := make([]string, len(d.Args))
			for i, a := range d.Args {
				quoted[i] = quote(a)
			}
			again, _, problem := words(" "+strings.Join(quoted, " "), true)
			if problem != "" || !slices.Equal(again, d.Args) && len(d.Args) > 0 {
				t.Fatalf("%q became %q (%s)", d.Args, again, problem)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte("#!/bin/bash\n" + strings.Repeat("#SBATCH --time=5 -J 'x y'\n", 15) +
		strings.Repeat("echo some command line of a usual length # and so on\n", 200))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

// quote writes a word as a directive needs it: words(quote(w)) is w. Line breaks can't be quoted.
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\r\\\"'#") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// TestForeign: the lines of other batch systems in sbatch's words; what is behind | has none.
func TestForeign(t *testing.T) {
	for line, want := range map[string]string{
		"#PBS -N x":              "--job-name=x",
		"#PBS -Nx -q batch@host": "--job-name=x --partition=batch",
		"#PBS -l nodes=2:ppn=4,walltime=1:00:00,mem=4gb": "--nodes=2 --ntasks=8 --ntasks-per-node=4 --time=1:00:00 --mem=4G",
		"#PBS -l nodes=n1:ppn=2+n2:ppn=2":                "--ntasks-per-node=2 --ntasks-per-node=2 --nodelist=n1,n2",
		"#PBS -l nodes=2+ppn=4,mem=4gb":                  "--nodes=2 --ntasks=8 --ntasks-per-node=4 --mem=4G",
		"#PBS -l nodes=2:fast":                           "--nodes=2 --constraint=fast",
		"#PBS -l select=2:ncpus=8:mpiprocs=4:mem=16gb:ngpus=1": "--nodes=2 --mem=16G --gpus-per-node=1 " +
			"--ntasks-per-node=4 --cpus-per-task=2",
		"#PBS -l select=1:ncpus=4+1:ncpus=2": " | #PBS -l select=1:ncpus=4+1:ncpus=2",
		"#PBS -l ncpus=4 -l file=1048576":    "--ntasks=1 --cpus-per-task=4 --tmp=1024K",
		"#PBS -o host:/tmp/o -e e.txt":       "--output=/tmp/o --error=e.txt",
		"#PBS -A acc -j oe -V -h":            "--account=acc --hold",
		"#PBS -t 1-4%2":                      "--array=1-4%2",
		"#PBS -J 0-3":                        "--array=0-3",
		"#PBS -a 12241800.30":                "--begin=12/24-18:00:30",
		"#PBS -m abe -M a@b -r n":            "--mail-type=FAIL,BEGIN,END --mail-user=a@b --no-requeue",
		"#PBS -v A=1,B -W depend=afterok:1":  "--export=ALL,A=1,B --dependency=afterok:1",
		"#PBS -W umask=022 -p 5":             " | #PBS -W umask=022, #PBS -p 5",
		"#PBS -N 'x":                         " | #PBS -N 'x",
		"#BSUB -J x[1-4]%2 -n 8 -W 2:30":     "--job-name=x --array=1-4%2 --ntasks=8 --time=2:30:00",
		"#BSUB -q q -o o -e e -i i -M 4096":  "--partition=q --output=o --error=e --input=i --mem-per-cpu=4096K",
		"#BSUB -x -m 'n1 n2' -W 30 -R span":  "--exclusive --nodelist=n1,n2 --time=30 | #BSUB -R span",
		"#PBS is another system":             "",
	} {
		s, err := Parse([]byte("#!/bin/sh\n" + line + "\n"))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		var got []string
		for _, d := range s.Foreign {
			got = append(got, d.Args...)
		}
		text := strings.Join(got, " ")
		if len(s.Unread) > 0 {
			text += " | " + strings.Join(s.Unread, ", ")
		}
		if text != want {
			t.Errorf("%s: %q, want %q", line, text, want)
		}
		if (want == "") != (s.ForeignWarning() == "") {
			t.Errorf("%s: warning %q", line, s.ForeignWarning())
		}
	}
}
