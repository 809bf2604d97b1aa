/** What a Java virtual machine makes of the limits of a run or a sandbox. */
import { existsSync } from 'node:fs'

/** Whether this machine has one that compiles a source file when it starts. */
export const hasJava = existsSync('/usr/bin/java') && existsSync('/usr/bin/javac')

/** Bash code that prints the size of the heap in bytes, the number of processors, and all and free memory in bytes. */
export const javaLimits = `
cat >/tmp/Limits.java <<'END'
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
class Limits {
  public static void main(String[] words) {
    var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    System.out.println("processors " + Runtime.getRuntime().availableProcessors());
    System.out.println("memory " + system.getTotalMemorySize() + " " + system.getFreeMemorySize());
  }
}
END
java -XX:+PrintFlagsFinal /tmp/Limits.java | awk '$2 == "MaxHeapSize" { print $4 } $1 == "processors" { print $2 } $1 == "memory" { print $2, $3 }'
`
