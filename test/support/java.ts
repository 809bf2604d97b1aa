/** What a Java virtual machine makes of the limits of a run or a sandbox. */
import { existsSync } from 'node:fs'

/** Whether this machine has one that compiles a source file when it starts. */
export const hasJava = existsSync('/usr/bin/java') && existsSync('/usr/bin/javac')

/** Bash code that prints the size of the heap in bytes, and the number of processors. */
export const javaLimits = `
cat >/tmp/Limits.java <<'END'
class Limits {
  public static void main(String[] words) {
    System.out.println("processors " + Runtime.getRuntime().availableProcessors());
  }
}
END
java -XX:+PrintFlagsFinal /tmp/Limits.java | awk '$2 == "MaxHeapSize" { print $4 } $1 == "processors" { print $2 }'
`
