package jinja

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// strftime writes the time as C's function of that name does in the C locale, with the flags of the GNU library between
// the sign and the letter: - no padding, _ blanks, 0 zeros, ^ capitals, # the other case. %f are microseconds; the time
// has no zone, as a datetime without one.
func (r *run) strftime(format string) (string, error) {
	p := &printer{r: r}
	for format != "" && p.err == nil {
		at := strings.IndexByte(format, '%')
		if at < 0 || at+1 == len(format) {
			p.add(format)
			break
		}
		p.add(format[:at])
		rest := format[at+1:]
		n := 0
		for n < len(rest) && strings.IndexByte("-_0^#", rest[n]) >= 0 {
			n++
		}
		flags := rest[:n]
		wide := 0
		for n < len(rest) && isDigit(rest[n]) && wide < 1000 {
			wide = wide*10 + int(rest[n]-'0')
			n++
		}
		if n == len(rest) {
			p.add(format[at:])
			break
		}
		_, w := utf8.DecodeRuneInString(rest[n:])
		text, ok := timeField(r.now, rest[n], flags, wide)
		if !ok {
			text = format[at : at+1+n+w]
		}
		p.add(text)
		format = rest[n+w:]
	}
	return p.done()
}

// timeField is what a directive stands for.
func timeField(t time.Time, c byte, flags string, wide int) (string, bool) {
	if n, width, pad, ok := timeNumber(t, c); ok {
		return padNumber(n, max(width, wide), pad, flags), true
	}
	text, ok := timeText(t, c)
	if !ok {
		return "", false
	}
	switch {
	case strings.Contains(flags, "^"):
		text = strings.ToUpper(text)
	case strings.Contains(flags, "#") && (c == 'p' || c == 'Z'):
		text = strings.ToLower(text)
	case strings.Contains(flags, "#"):
		text = strings.ToUpper(text)
	}
	if n := wide - len(text); n > 0 {
		fill := " "
		if strings.Contains(flags, "0") {
			fill = "0"
		}
		text = strings.Repeat(fill, n) + text
	}
	return text, true
}

func padNumber(n, width int, pad byte, flags string) string {
	text := strconv.Itoa(n)
	for _, f := range []byte(flags) {
		switch f {
		case '-':
			return text
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
	}
	if len(text) < width {
		text = strings.Repeat(string(pad), width-len(text)) + text
	}
	return text
}

// timeNumber are the directives that are numbers.
func timeNumber(t time.Time, c byte) (n, width int, pad byte, ok bool) {
	year, week := t.ISOWeek()
	hour := (t.Hour()+11)%12 + 1
	switch c {
	case 'd':
		return t.Day(), 2, '0', true
	case 'e':
		return t.Day(), 2, ' ', true
	case 'm':
		return int(t.Month()), 2, '0', true
	case 'y':
		return t.Year() % 100, 2, '0', true
	case 'C':
		return t.Year() / 100, 2, '0', true
	case 'Y':
		return t.Year(), 1, '0', true
	case 'G':
		return year, 4, '0', true
	case 'g':
		return year % 100, 2, '0', true
	case 'V':
		return week, 2, '0', true
	case 'H':
		return t.Hour(), 2, '0', true
	case 'k':
		return t.Hour(), 2, ' ', true
	case 'I':
		return hour, 2, '0', true
	case 'l':
		return hour, 2, ' ', true
	case 'M':
		return t.Minute(), 2, '0', true
	case 'S':
		return t.Second(), 2, '0', true
	case 'f':
		return t.Nanosecond() / 1000, 6, '0', true
	case 'j':
		return t.YearDay(), 3, '0', true
	case 'u':
		return (int(t.Weekday())+6)%7 + 1, 1, '0', true
	case 'w':
		return int(t.Weekday()), 1, '0', true
	case 'U':
		return (t.YearDay() + 6 - int(t.Weekday())) / 7, 2, '0', true
	case 'W':
		return (t.YearDay() + 6 - (int(t.Weekday())+6)%7) / 7, 2, '0', true
	case 's':
		return int(t.Unix()), 1, '0', true
	}
	return 0, 0, 0, false
}

// timeText are the others.
func timeText(t time.Time, c byte) (string, bool) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'P': "pm",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'D': "01/02/06", 'X': "15:04:05", 'T': "15:04:05",
		'R': "15:04", 'r': "03:04:05 PM", 'F': "2006-01-02",
	}
	switch c {
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	case 'z', 'Z':
		return "", true
	}
	layout, ok := layouts[c]
	return t.Format(layout), ok
}
